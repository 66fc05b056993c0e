package config

import (
	"net"
	"net/netip"
	"strings"
)

func (c *Config) validateListeners(k *checker) {
	port, ok := checkAddress("listen", c.Listen, k)
	adminPort, adminOK := checkAddress("admin.listen", c.Admin.Listen, k)
	if ok && adminOK && port == adminPort && port != 0 && hostOf(c.Listen) == hostOf(c.Admin.Listen) && k.ok("listen") {
		k.fail("admin.listen", "is the same address as listen")
	}
	if ok && len(c.Callers) == 0 && !c.AllowAnonymous && !Loopback(c.Listen) && k.ok("callers", "allow_anonymous") {
		k.fail("listen", "%s can be reached from other machines, and no callers are configured. Configure callers, listen on a loopback address, or set allow_anonymous: true if something else keeps strangers out", shown(c.Listen))
	}
	if adminOK && c.Admin.Token == "" && !Loopback(c.Admin.Listen) && k.ok("admin.token") {
		k.fail("admin.listen", "%s can be reached from other machines; set admin.token or listen on a loopback address", shown(c.Admin.Listen))
	}
}

// checkAddress reads an address to listen on; port 0 is any free one.
func checkAddress(path, addr string, k *checker) (port int, ok bool) {
	_, name, err := net.SplitHostPort(addr)
	if err != nil {
		k.fail(path, "%s is not an address; write HOST:PORT", shown(addr))
		return 0, false
	}
	// net.Listen takes an empty port for 0.
	if name == "" {
		k.fail(path, "%s has no port; write HOST:PORT, with port 0 for any that is free", shown(addr))
		return 0, false
	}
	if port, err = net.LookupPort("tcp", name); err != nil {
		k.fail(path, "%s has no usable port; use a number from 0 to 65535, or the name of a service that this machine knows", shown(addr))
		return 0, false
	}
	return port, true
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// Loopback reports whether an address can only be reached from this machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
