package clientenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNpmrc(t *testing.T) {
	home, work, global := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "npmrc")
	user := filepath.Join(home, ".npmrc")
	env := []string{"HOME=" + home, "NPM_CONFIG_GLOBALCONFIG=" + global, "NAME=corp"}
	for _, r := range []struct {
		name, project, user, global, more, want string
	}{
		{"none", "", "", "", "", ""},
		{"no cafile", "color=true\n", "; cafile=/x\n#cafile=/x\n", "mycafile=/x\ncafile\ncafile=\ncafile=null\n", "", ""},
		{"global", "", "", "cafile=/g.pem", "", "/g.pem"},
		{"user before global", "", "a=b\n cafile = \"/u.pem\" \n", "cafile=/g.pem", "", "/u.pem"},
		{"project before user", "cafile=/p.pem", "cafile=/u.pem", "", "", "/p.pem"},
		{"variables", "", "cafile=${HOME}/${NAME}$x.pem", "", "", home + "/corp$x.pem"},
		{"home", "", "cafile=~/c.pem", "", "", home + "/c.pem"},
		{"another user's file", "", "cafile=/u.pem", "", "npm_config_userconfig=" + global, ""},
	} {
		for file, text := range map[string]string{filepath.Join(work, ".npmrc"): r.project, user: r.user, global: r.global} {
			write(t, file, 0o600, text)
		}
		if got := npmrcCafile(getter(append(env, r.more)...), work); got != r.want {
			t.Errorf("%s: %q, want %q", r.name, got, r.want)
		}
	}
}

func TestWgetrc(t *testing.T) {
	for _, r := range []struct {
		theirs, want, cafile string
		proxied              bool
	}{
		{"", "ca_certificate = /b\n", "", true},
		{"timeout = 3", "timeout = 3\nca_certificate = /b\n", "", true},
		{"# hello\nheader = A: b=c\n", "# hello\nheader = A: b=c\nca_certificate = /b\n", "", true},
		{"CA-Certificate=/corp.pem\nx = y\n", "x = y\nca_certificate = /b\n", "/corp.pem", true},
		{"ca_certificate = ~/corp.pem\n", "ca_certificate = /b\n", "/home/u/corp.pem", true},
		{"https_proxy = http://other:1\nuse_proxy = off\nno-proxy = *\nhttp_proxy = x\nftp_proxy = y\n", "ftp_proxy = y\nca_certificate = /b\n", "", true},
		{"use_proxy = off\n", "use_proxy = off\nca_certificate = /b\n", "", false},
	} {
		text, cafile := wgetrc([]byte(r.theirs), "/home/u", r.proxied, "/b")
		if string(text) != r.want || cafile != r.cafile {
			t.Errorf("%q: %q, %q", r.theirs, text, cafile)
		}
	}
}

// TestWgetsOwnBundleIsKept beside the system's, as wget does.
func TestWgetsOwnBundleIsKept(t *testing.T) {
	ours, system, x := authority(t), authority(t), authority(t)
	own := write(t, filepath.Join(t.TempDir(), "x.pem"), 0o600, string(x.PEM()))
	for _, byVariable := range []bool{false, true} {
		base := bare(t, system)
		file := filepath.Join(value(base, "HOME"), ".wgetrc")
		if byVariable {
			file = filepath.Join(t.TempDir(), "wgetrc")
			base = append(base, "WGETRC="+file)
		}
		write(t, file, 0o600, "ca_certificate = "+own+"\nuser = me\n")
		e := prepare(t, Settings{CA: ours.PEM(), Base: base})
		text, _ := os.ReadFile(e.value("WGETRC"))
		_, bundle, _ := strings.Cut(string(text), "ca_certificate = ")
		if !strings.HasPrefix(string(text), "user = me\n") {
			t.Errorf("%s", text)
		}
		holds(t, strings.TrimSpace(bundle), ours, system, x)
	}
}
