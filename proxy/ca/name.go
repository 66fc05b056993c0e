package ca

import (
	"errors"
	"net/netip"
	"strings"
)

// checkName returns the one spelling of a DNS name or an IP address that a leaf may
// be for. Names come from clients (CONNECT, SNI): what no resolver would take for a
// host gets no certificate.
func checkName(name string) (string, error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" {
			return "", errors.New("an address with a zone is only good on one machine")
		}
		return addr.Unmap().String(), nil
	}
	name = strings.ToLower(name)
	switch {
	case name == "":
		return "", errors.New("it is empty")
	case len(name) > 253:
		return "", errors.New("it is longer than 253 characters")
	case strings.HasPrefix(name, "*"):
		return "", errors.New("a certificate is for one host, not for a pattern")
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || l[0] == '-' || l[len(l)-1] == '-' {
			return "", errors.New("it is not a host name; write non-ASCII names in their xn-- form, and no port or brackets")
		}
	}
	// 127.1 and 127.0.0.0x1 are addresses to some resolvers and names to others.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", errors.New("it ends in a number, and is no IP address")
	}
	return name, nil
}
