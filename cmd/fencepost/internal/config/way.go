package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"fencepost/policy"
)

// hostField is the Host that the upstream gets, as the policy package has it.
func (r *Route) hostField() string {
	if r.Host == "upstream" {
		return ""
	}
	return r.Host
}

func (r *Route) fields() policy.FieldRule {
	out := policy.FieldRule{Remove: r.Headers.Remove}
	for _, p := range r.Headers.Set {
		if out.Set == nil {
			out.Set = make(map[string]string)
		}
		out.Set[p.Name] = string(p.Value)
	}
	return out
}

func (r *Route) connect() policy.ConnectRule {
	return policy.ConnectRule{
		HTTP:       map[string]policy.HTTPVersion{"http1": policy.HTTP1, "http2": policy.HTTP2, "h2c": policy.H2C}[r.HTTP],
		ServerName: r.TLS.ServerName,
	}
}

// readTLS reads the files of upstream_tls. They are read anew at each reload.
func (r *Route) readTLS(out *policy.Route, fail func(path string, err error)) {
	read := func(path, file string, to *string) bool {
		if file == "" {
			return false
		}
		b, err := os.ReadFile(file)
		if err != nil {
			fail(path, err)
			return false
		}
		*to = string(b)
		return true
	}
	c := &out.Connect
	if read("ca", r.TLS.CA, &c.Roots) && !x509.NewCertPool().AppendCertsFromPEM([]byte(c.Roots)) {
		fail("ca", errors.New("the file holds no certificate in PEM form"))
	}
	cert, key := read("cert", r.TLS.Cert, &c.Certificate), read("key", r.TLS.Key, &c.Key)
	if cert && key {
		if _, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key)); err != nil {
			fail("cert", err)
		}
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		fail("cert", errors.New("cert and key go together"))
	}
}
