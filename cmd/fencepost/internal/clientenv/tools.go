package clientenv

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// npmrcCafile is the file of certificates that an npmrc names, "" where none does.
// Where one does, npm trusts that file alone and ignores Node's variables.
func npmrcCafile(get func(string) string, workDir string) string {
	files := []string{filepath.Join(workDir, ".npmrc")}
	if f := npmConfig(get, "userconfig"); f != "" {
		files = append(files, f)
	} else if home := get("HOME"); home != "" {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	if f := npmConfig(get, "globalconfig"); f != "" {
		files = append(files, f)
	} else {
		files = append(files, "/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/npmrc")
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, value, ok := strings.Cut(line, "=")
			if ok && strings.TrimSpace(name) == "cafile" {
				if value = strings.Trim(strings.TrimSpace(value), `"'`); value != "" && value != "null" {
					return expandNPM(get, value)
				}
			}
		}
	}
	return ""
}

// npmConfig is a setting of npm's in the environment, where either case counts.
func npmConfig(get func(string) string, name string) string {
	if v := get("npm_config_" + name); v != "" {
		return v
	}
	return get("NPM_CONFIG_" + strings.ToUpper(name))
}

// expandNPM replaces ${NAME} and a leading ~/ as npm does.
func expandNPM(get func(string) string, s string) string {
	if rest, ok := strings.CutPrefix(s, "~/"); ok {
		s = filepath.Join(get("HOME"), rest)
	}
	return npmVariable.ReplaceAllStringFunc(s, func(m string) string { return get(m[2 : len(m)-1]) })
}

var npmVariable = regexp.MustCompile(`\$\{[^}]+\}`)

// wgetrcFile is the file with wget's settings of the user, "" where there is none.
func wgetrcFile(get func(string) string) string {
	f := get("WGETRC")
	if f == "" && get("HOME") != "" {
		f = filepath.Join(get("HOME"), ".wgetrc")
	}
	if fi, err := os.Stat(f); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxBundle {
		return ""
	}
	return f
}

// wgetrc returns the user's settings with the bundle's in place of what would lead
// around the proxy or away from the bundle, and the certificates that they named.
func wgetrc(theirs []byte, home string, proxied bool, bundle string) (text []byte, cafile string) {
	var out bytes.Buffer
	for line := range bytes.Lines(theirs) {
		name, value, _ := strings.Cut(string(line), "=")
		switch name = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(strings.TrimSpace(name))); {
		case name == "cacertificate":
			cafile = strings.TrimSpace(value)
			if rest, ok := strings.CutPrefix(cafile, "~/"); ok {
				cafile = filepath.Join(home, rest)
			}
		case proxied && (name == "httpproxy" || name == "httpsproxy" || name == "useproxy" || name == "noproxy"):
			// These go before the environment's.
		default:
			out.Write(line)
		}
	}
	if n := out.Len(); n > 0 && out.Bytes()[n-1] != '\n' {
		out.WriteByte('\n')
	}
	out.WriteString("ca_certificate = " + bundle + "\n")
	return out.Bytes(), cafile
}
