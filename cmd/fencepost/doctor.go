package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"fencepost/cmd/fencepost/internal/clientenv"
	"fencepost/cmd/fencepost/internal/config"
	"fencepost/proxy/ca"
)

// doctorTime bounds one client's try.
const doctorTime = 30 * time.Second

// client is a program that makes HTTPS requests, and how it is made to make one.
type client struct {
	name string
	// program is what must be on the PATH.
	program string
	// args are its arguments for a request to a URL.
	args func(url string) []string
	// needs tells whether what the request needs beside the program is there.
	needs []string
	// cure is what helps where it is not governed.
	cure string
}

const nodeCure = "set NODE_USE_ENV_PROXY=1 (run does) with Node 22.21, 24 or later; older ones need an agent in the code, or the base URL of the reverse proxy"

// clients are those that the doctor knows.
var clients = []client{
	{name: "curl", program: "curl", args: func(u string) []string { return []string{"-sS", "-o", os.DevNull, "-m", "20", u} }},
	{name: "wget", program: "wget", args: func(u string) []string { return []string{"-q", "-O", os.DevNull, "-T", "20", "-t", "1", u} }},
	{name: "git", program: "git", args: func(u string) []string { return []string{"ls-remote", u + "x.git"} }},
	{name: "python urllib", program: "python3", args: func(u string) []string {
		return []string{"-c", "import urllib.request as r; r.urlopen('" + u + "', timeout=20)"}
	}},
	{name: "python requests", program: "python3", needs: []string{"-c", "import requests"}, args: func(u string) []string {
		return []string{"-c", "import requests; requests.get('" + u + "', timeout=20)"}
	}},
	{name: "python httpx", program: "python3", needs: []string{"-c", "import httpx"}, args: func(u string) []string {
		return []string{"-c", "import httpx; httpx.get('" + u + "', timeout=20)"}
	}},
	{name: "python aiohttp", program: "python3", needs: []string{"-c", "import aiohttp"}, cure: "aiohttp reads the proxy variables only with ClientSession(trust_env=True)", args: func(u string) []string {
		return []string{"-c", "import asyncio, aiohttp\nasync def f():\n  async with aiohttp.ClientSession() as s:\n    await s.get('" + u + "')\nasyncio.run(f())"}
	}},
	{name: "node https", program: "node", cure: nodeCure, args: func(u string) []string {
		return []string{"-e", "require('https').get('" + u + "', r => r.resume()).on('error', e => { console.error(e.message); process.exit(1) })"}
	}},
	{name: "node fetch", program: "node", cure: nodeCure, args: func(u string) []string {
		return []string{"-e", "fetch('" + u + "').then(r => r.text()).catch(e => { console.error(String(e.cause || e)); process.exit(1) })"}
	}},
	{name: "npm", program: "npm", args: func(u string) []string {
		return []string{"ping", "--registry", u, "--fetch-retries", "0", "--fetch-timeout", "20000"}
	}},
	{name: "java", program: "java", args: func(string) []string { return nil }},
	{name: "go net/http", program: "", args: func(u string) []string { return []string{probeCommand, u} }},
}

// probeCommand is a subcommand that is not shown: it makes one request as any Go
// program would.
const probeCommand = "doctor-probe"

func probe(args []string, _, stderr io.Writer) int {
	if len(args) != 1 {
		return exitUsage
	}
	resp, err := http.Get(args[0])
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	resp.Body.Close()
	return exitOK
}

const javaProbe = `import java.net.*;
public class Probe {
  public static void main(String[] a) throws Exception {
    HttpURLConnection c = (HttpURLConnection) new URI(a[0]).toURL().openConnection();
    c.setConnectTimeout(20000);
    c.setReadTimeout(20000);
    System.err.println(c.getResponseCode());
  }
}
`

// diagnosis is what came of one client's try.
type diagnosis struct {
	client  client
	through bool
	trusts  bool
	said    string
}

// runDoctor tries which clients of this machine go through the egress proxy and
// trust its authority. It needs nothing but this machine: each client asks for a
// host that does not exist, which the proxy refuses, inside the TLS that the client
// asked for. args is the command that is meant to be run, for which the clients are
// told apart, or nothing.
func runDoctor(args []string, stdout, stderr io.Writer) int {
	all, err := diagnose(stderr)
	if err != nil {
		return fail(stderr, "run --doctor", err)
	}
	code := exitOK
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tGOES THROUGH\tTRUSTS\tWHAT TO DO")
	for _, d := range all {
		cure := ""
		if !d.through || !d.trusts {
			code = exitFailed
			if cure = d.client.cure; cure == "" {
				cure = d.said
			}
		}
		trusts := yesNo(d.trusts)
		if !d.through {
			trusts = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.client.name, yesNo(d.through), trusts, cure)
	}
	_ = w.Flush()
	if len(args) > 0 {
		fmt.Fprintf(stdout, "\nWhat %s uses, only its own code says: a program that makes requests of its own way (certificate pinning, QUIC, raw sockets) is not governed.\n", filepath.Base(args[0]))
	}
	return code
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

// diagnose tries every client that is here.
func diagnose(stderr io.Writer) ([]diagnosis, error) {
	dir, err := os.MkdirTemp("", "fencepost-doctor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := config.ForRun(dir, "doctor-has-no-operators")
	c.Egress.Allow, c.Routes = nil, c.Routes[:1]
	c.Routes[0].Match.Host = "none.invalid"
	authority, err := ca.OpenOrInit(c.Egress.CA.Dir, ca.Options{})
	if err != nil {
		return nil, err
	}
	s, err := startServer(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.stop(nil) }()
	private := filepath.Join(dir, "env")
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, err
	}
	env, err := clientenv.Prepare(private, clientenv.Settings{Proxy: proxyURL(s.bound.egress.Addr().String()).String(), CA: authority.PEM(), Base: os.Environ()})
	if err != nil {
		return nil, err
	}
	var out []diagnosis
	for _, cl := range clients {
		if !cl.here() {
			continue
		}
		fmt.Fprintf(stderr, "trying %s …\n", cl.name)
		host := strings.ReplaceAll(cl.name, " ", "-") + ".doctor.invalid"
		host = strings.ReplaceAll(host, "/", "-")
		before := len(s.proxy.Tally().RefusedHosts)
		said := cl.try(dir, "https://"+host+"/", env.Environ(os.Environ()))
		t := s.proxy.Tally()
		out = append(out, diagnosis{client: cl, through: len(t.RefusedHosts) > before, trusts: t.Told[host] > 0, said: said})
	}
	return out, nil
}

// here reports whether the client is on this machine.
func (cl *client) here() bool {
	if cl.program == "" {
		return true
	}
	if _, err := exec.LookPath(cl.program); err != nil {
		return false
	}
	if cl.needs == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	return exec.CommandContext(ctx, cl.program, cl.needs...).Run() == nil
}

// try makes the client ask for a URL, and returns the last line of what it said.
func (cl *client) try(dir, url string, env []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	program, args := cl.program, cl.args(url)
	switch {
	case program == "":
		self, err := os.Executable()
		if err != nil {
			return err.Error()
		}
		program = self
	case cl.name == "java":
		file := filepath.Join(dir, "Probe.java")
		if err := os.WriteFile(file, []byte(javaProbe), 0o600); err != nil {
			return err.Error()
		}
		args = []string{file, url}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = env, dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "it did not end within " + doctorTime.String()
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if said := lines[len(lines)-1]; said != "" {
		if len(said) > 160 {
			said = said[:160] + "…"
		}
		return said
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
