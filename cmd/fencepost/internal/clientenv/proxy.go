package clientenv

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// proxyURL is the proxy's address, taken apart.
type proxyURL struct {
	text       string // with the token, for the variables
	host, port string
	secret     bool
}

func parseProxy(s string) (proxyURL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		// Not repeated: it may hold a token.
		return proxyURL{}, errors.New("the proxy's address is not a URL; write it like http://127.0.0.1:3128")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return proxyURL{}, errors.New("the proxy's address must be http:// or https://, with a host and a port and nothing after them")
	}
	p := proxyURL{host: u.Hostname(), port: u.Port(), secret: u.User != nil}
	if p.port == "" {
		// Clients do not agree on the port of a proxy that has none.
		return proxyURL{}, errors.New("the proxy's address has no port; write it like http://127.0.0.1:3128")
	}
	u.Path = ""
	p.text = u.String()
	return p, nil
}

// local are the hosts that are reached directly: a program's own servers, such as
// local MCP servers, would otherwise be asked for through the proxy, which refuses
// addresses of its own machine. Both spellings of ::1: clients compare texts.
var local = []string{"localhost", "127.0.0.1", "::1", "[::1]"}

// noProxy joins the hosts that the user reaches directly to the local ones. A "*" is
// left out, and reported: with it nothing would go through the proxy.
func noProxy(get func(string) string) (hosts []string, all bool) {
	hosts = slices.Clone(local)
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		for _, h := range strings.FieldsFunc(get(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			if h == "*" {
				all = true
			} else if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts, all
}

// nonProxyHosts writes the hosts as Java wants them: names and addresses with * at
// one end, separated by |. left are those that it cannot have: networks and ports.
func nonProxyHosts(hosts []string) (text string, left []string) {
	out := []string{"localhost", "127.*", "[::1]"}
	for _, h := range hosts {
		if slices.Contains(local, h) {
			continue
		}
		name := strings.TrimPrefix(h, "*")
		address := net.ParseIP(strings.Trim(name, "[]"))
		switch {
		case strings.ContainsAny(name, "/|*\"'\\"), strings.Contains(name, ":") && address == nil:
			left = append(left, h)
		case strings.Contains(name, ":"):
			out = append(out, "["+strings.Trim(name, "[]")+"]")
		case address != nil:
			out = append(out, name)
		case strings.HasPrefix(name, "."):
			out = append(out, "*"+name)
		default: // as most clients read it: the name, and what is below it
			out = append(out, name, "*."+name)
		}
	}
	return strings.Join(out, "|"), left
}
