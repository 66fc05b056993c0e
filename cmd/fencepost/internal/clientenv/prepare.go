package clientenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the files. One more, with the variable's name in lower case, stands beside
// them for each variable whose client trusted something else than the system's roots.
const (
	CAFile     = "ca.pem"
	BundleFile = "bundle.pem"
	StoreFile  = "truststore.p12"
	wgetrcName = "wgetrc"
	markName   = "fencepost.txt"
)

// mark is in every folder that Prepare has written to, and says so to people. Without
// it a folder's files are somebody else's, and are not replaced.
const mark = "The files in this folder were made by Fencepost, for clients of its egress proxy.\nThey are replaced each time it prepares a client's environment.\n"

// Settings are what a client's environment is made of.
type Settings struct {
	// Proxy is the URL of the egress proxy, with the caller's token where it wants one.
	// Empty: trust only.
	Proxy string
	// CA is the authority's certificate in PEM. Required.
	CA []byte
	// Base is the environment that the client has otherwise, as os.Environ gives it.
	Base []string
	// Seen is the folder in which the client sees the files, where that is not the one
	// they are written to: a container's mount. The client then is on another machine,
	// as far as its own configuration files and its Java go.
	Seen string
	// WorkDir is where the client starts. Default: the current folder.
	WorkDir string
}

// Variable is one environment variable.
type Variable struct {
	Name, Value string
	// Why says which clients read it.
	Why string
	// Secret is set where the value holds the proxy's token.
	Secret bool
}

// Env is what a client needs beside its own environment.
type Env struct {
	// Variables in a fixed order.
	Variables []Variable
	// Roots are the files and folders that the system's roots were found in. None:
	// clients trust nothing but the authority, and can reach no host that is tunnelled.
	Roots []string
	// Warnings are for the user: each says what will not work, and what to do.
	Warnings []string

	dir, seen string
}

// Prepare writes the files into dir, which is made where it does not exist, and
// returns the variables. A folder that has other files in it is refused. Files of an earlier call are exchanged one by one, each at
// once, so that clients that are running read either the old or the new.
func Prepare(dir string, s Settings) (*Env, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &preparation{Env: Env{dir: abs, seen: s.Seen}, settings: s, files: make(map[string][]byte)}
	if p.seen == "" {
		p.seen = abs
	}
	if err := p.plan(); err != nil {
		return nil, fmt.Errorf("cannot prepare a client's environment: %w", err)
	}
	if err := p.write(); err != nil {
		return nil, fmt.Errorf("cannot write what clients need: %w", err)
	}
	return &p.Env, nil
}

// preparation is a call of Prepare.
type preparation struct {
	Env
	settings  Settings
	elsewhere bool
	proxy     *proxyURL
	ca        certs
	roots     *certs
	files     map[string][]byte
	bundles   []string // those of files that hold certificates in PEM
}

// plan decides on everything, and writes nothing.
func (p *preparation) plan() error {
	s := &p.settings
	p.elsewhere = s.Seen != ""
	if strings.ContainsAny(p.seen+p.dir, "\n\r\x00") || !path.IsAbs(p.seen) {
		return fmt.Errorf("the folder %q cannot be named in an environment variable", p.seen)
	}
	if p.ca.addPEM(s.CA); len(p.ca.ders) != 1 {
		return fmt.Errorf("the authority's PEM holds %d certificates, and must hold one", len(p.ca.ders))
	}
	p.files[markName] = []byte(mark)
	p.files[CAFile] = p.ca.pem()
	p.bundles = []string{CAFile}
	if s.Proxy != "" {
		u, err := parseProxy(s.Proxy)
		if err != nil {
			return err
		}
		p.proxy = &u
		p.planProxy()
	}
	p.roots, p.Roots = p.systemRoots()
	if len(p.roots.ders) == 0 {
		p.warn("no roots of this system were found: clients trust Fencepost's authority only, and can reach no host that is not intercepted; install the system's ca-certificates, or set SSL_CERT_FILE to a bundle")
	}
	p.file("", p.roots)
	p.planReplacing()
	p.planAdding()
	p.planWget()
	return p.planJava()
}

// get reads the client's environment.
func (p *preparation) get(name string) string {
	for _, kv := range slices.Backward(p.settings.Base) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v
		}
	}
	return ""
}

// own reports whether a file is one that an earlier Prepare made in the same folder.
// The variables of a shell that has evaluated the output of `ca env` name them.
func (p *preparation) own(file string) bool { return filepath.Dir(file) == p.dir }

// read reads certificates.
func (p *preparation) read(file string) (*certs, error) {
	c := &certs{}
	err := c.addFile(file)
	return p.theirs(file, c), err
}

// theirs are the certificates that the user trusts by a file. In one of an earlier
// Prepare the first one is the authority of that time, which may have been replaced.
func (p *preparation) theirs(file string, c *certs) *certs {
	if !p.own(file) || len(c.ders) == 0 {
		return c
	}
	rest := &certs{}
	for _, der := range c.ders[1:] {
		rest.add(der)
	}
	return rest
}

func (p *preparation) set(name, value, why string) {
	p.Variables = append(p.Variables, Variable{Name: name, Value: value, Why: why})
}

func (p *preparation) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

func (p *preparation) at(file string) string { return path.Join(p.seen, file) }

func (p *preparation) planProxy() {
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		why := "the proxy"
		switch name {
		case "http_proxy":
			why = "the proxy; curl reads this one only in lower case"
		case "https_proxy":
			why = "the proxy; wget reads this one only in lower case"
		}
		p.Variables = append(p.Variables, Variable{Name: name, Value: p.proxy.text, Why: why, Secret: p.proxy.secret})
	}
	hosts, all := noProxy(p.get)
	if all {
		p.warn("NO_PROXY of the environment has a *, which is left out: nothing would go through Fencepost")
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		p.set(name, strings.Join(hosts, ","), "hosts that are reached directly: this machine, and the user's")
	}
	p.set("NODE_USE_ENV_PROXY", "1", "Node from 22.21 and 24 reads the proxy variables only with it; an older Node does not read them at all")
}

// file plans a bundle: the authority, which has to stand first, and what was trusted
// before. It returns its name. owner is the variable it is for, "" for the system's roots.
func (p *preparation) file(owner string, before *certs) string {
	all := &certs{}
	all.addAll(&p.ca)
	all.addAll(before)
	text := all.pem()
	name := BundleFile
	if owner != "" {
		for _, same := range p.bundles {
			if bytes.Equal(p.files[same], text) {
				return p.at(same)
			}
		}
		name = strings.ToLower(owner) + ".pem"
	}
	p.files[name] = text
	p.bundles = append(p.bundles, name)
	return p.at(name)
}

// before is what a client trusted before, as the first of the variables that is set
// names it; fallback where none is.
func (p *preparation) before(variables []string, fallback *certs) *certs {
	for _, name := range variables {
		if f := p.get(name); f != "" {
			return p.load(name+" of the environment", f)
		}
	}
	return fallback
}

func (p *preparation) load(whose, file string) *certs {
	c, err := p.read(file)
	if err == nil && len(c.ders) == 0 && !p.own(file) {
		err = errors.New("it holds no certificate")
	}
	if err != nil {
		p.warn("%s names %s, which cannot be read (%v): its clients trust Fencepost's authority only", whose, file, err)
	}
	return c
}

func (p *preparation) planReplacing() {
	for _, v := range replacing {
		p.set(v.name, p.file(v.name, p.before(v.before, p.roots)), v.why)
	}
	const why = "npm, where an npmrc or the environment names a file of certificates: it then ignores Node's variables"
	f, whose := npmConfig(p.get, "cafile"), "NPM_CONFIG_CAFILE of the environment"
	if f == "" && !p.elsewhere {
		f, whose = npmrcCafile(p.get, p.settings.WorkDir), "cafile of an npmrc"
	}
	if f == "" {
		return
	}
	const name = "NPM_CONFIG_CAFILE"
	bundle := p.file(name, p.load(whose, f))
	p.set(name, bundle, why)
	if p.get(strings.ToLower(name)) != "" {
		p.set(strings.ToLower(name), bundle, why) // npm does not say which of the two goes first
	}
}

func (p *preparation) planAdding() {
	for _, v := range adding {
		p.set(v.name, p.file(v.name, p.before(v.before, &certs{})), v.why)
	}
}

func (p *preparation) planWget() {
	var theirs []byte
	if !p.elsewhere {
		if f := wgetrcFile(p.get); f != "" {
			var err error
			if theirs, err = os.ReadFile(f); err != nil {
				p.warn("%s cannot be read (%v): wget goes without it", f, err)
			}
		}
	}
	_, cafile := wgetrc(theirs, p.get("HOME"), p.proxy != nil, "")
	bundle := p.at(BundleFile)
	if cafile != "" { // wget trusts the system's roots beside it
		both := &certs{}
		both.addAll(p.roots)
		both.addAll(p.load("ca_certificate of a wgetrc", cafile))
		bundle = p.file("WGETRC", both)
	}
	p.files[wgetrcName], _ = wgetrc(theirs, p.get("HOME"), p.proxy != nil, bundle)
	p.set("WGETRC", p.at(wgetrcName), "wget, which reads no variable with certificates: the user's wgetrc, with the bundle")
}

func (p *preparation) planJava() error {
	before := p.roots
	if !p.elsewhere {
		var problem error
		if before, problem = p.javaBefore(); problem != nil {
			p.warn("%v; Java trusts Fencepost's authority only", problem)
		}
	}
	all := &certs{}
	all.addAll(&p.ca) // first, as in a bundle
	all.addAll(before)
	store, skipped, err := trustStore(all)
	if err != nil {
		return fmt.Errorf("a trust store for Java: %w", err)
	}
	if skipped > 0 {
		p.warn("%d certificates that Java trusted cannot be parsed, and are left out of its trust store", skipped)
	}
	p.files[StoreFile] = store
	hosts, _ := noProxy(p.get)
	options, left, err := javaOptions(p.proxy, hosts, p.at(StoreFile))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		p.warn("Java cannot have these of NO_PROXY, and reaches them through Fencepost: %s", strings.Join(left, ", "))
	}
	why := "Java, which reads no other variable"
	if p.proxy != nil && p.proxy.secret {
		why += "; the proxy's token is not in it, so Java is refused unless the program itself sets an Authenticator"
	}
	// After the user's, because the last one counts. Once, however often this ran.
	theirs := strings.TrimSpace(strings.ReplaceAll(p.get("JAVA_TOOL_OPTIONS"), options, ""))
	p.set("JAVA_TOOL_OPTIONS", strings.TrimSpace(theirs+" "+options), why)
	return nil
}

func (p *preparation) write() error {
	dirMode, fileMode := fs.FileMode(0o700), fs.FileMode(0o644)
	if p.elsewhere {
		dirMode = 0o755 // a container's user is another one
	}
	if err := os.MkdirAll(p.dir, dirMode); err != nil {
		return err
	}
	fi, err := os.Stat(p.dir)
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others can write to %s (mode %04o), and so make clients trust whom they like: chmod go-w %[1]s", p.dir, fi.Mode().Perm())
	}
	if entries, err := os.ReadDir(p.dir); err != nil {
		return err
	} else if _, err := os.Lstat(filepath.Join(p.dir, markName)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has other files in it, which are not to be replaced; name a new folder, or an empty one", p.dir)
	}
	if err := exchange(filepath.Join(p.dir, markName), p.files[markName], fileMode); err != nil {
		return err // first, so that a folder that is half written can be written again
	}
	for name, text := range p.files {
		mode := fileMode
		if name == wgetrcName && !p.elsewhere {
			mode = 0o600 // the user's may hold passwords
		}
		if err := exchange(filepath.Join(p.dir, name), text, mode); err != nil {
			return err
		}
	}
	return nil
}

// exchange puts a file in place of another at once.
func exchange(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more when all went well
	if err = f.Chmod(mode); err == nil {
		_, err = f.Write(text)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Environ returns an environment with the variables in it, as exec.Cmd takes it.
func (e *Env) Environ(base []string) []string {
	out := slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(e.Variables, func(v Variable) bool { return v.Name == name })
	})
	for _, v := range e.Variables {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}
