package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"fencepost/proxy/internal/front"
)

// Server serves a handler to clients. It refuses requests whose framing is
// doubtful (RFC 9112, section 11), and speaks HTTP/2 where TLS negotiates it.
type Server struct {
	http    *http.Server
	options ServerOptions
	tls     *tls.Config // nil without TLS
}

// ServerOptions bound what one client can take up.
type ServerOptions struct {
	// HeaderTimeout bounds reading one request's header, and a TLS handshake.
	HeaderTimeout time.Duration
	// IdleTimeout closes a connection that was idle so long.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds one request's header.
	MaxHeaderBytes int
	// CertFile and KeyFile, PEM, turn TLS on. They are read again when they change.
	CertFile, KeyFile string
	// Logger gets what goes wrong on connections. Required.
	Logger *slog.Logger
}

// headSlop is by how much net/http lets a header be larger than its limit.
const headSlop = 4096

// NewServer returns a server for h. An error means that the certificate cannot be
// used.
func NewServer(h http.Handler, o ServerOptions) (*Server, error) {
	s := &Server{options: o, http: &http.Server{
		Handler:           framed(h),
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		ConnContext:       front.ConnContext,
		// Each request must reach the handler: see front.Doubt.
		DisableGeneralOptionsHandler: true,
		// An Expect: 100-continue is answered when the body is first read, which is
		// after the request was routed and its caller identified.
	}}
	if o.CertFile != "" {
		cert, err := front.LoadCertificate(o.CertFile, o.KeyFile, o.Logger)
		if err != nil {
			return nil, err
		}
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.Get, NextProtos: []string{"h2", "http/1.1"}}
	}
	return s, nil
}

// framed refuses what is doubtful before h sees it.
func framed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if doubt := front.Doubt(r); doubt != "" {
			// Nobody can say where the next request on this connection begins.
			w.Header().Set("Connection", "close")
			writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: "The request is refused, because servers disagree on how to read it: " + doubt + ". Nothing was sent."})
			return
		}
		r.TLS = front.TLS(r)
		h.ServeHTTP(w, r)
	})
}

// Serve accepts connections on l until Shutdown or Close, and then returns
// http.ErrServerClosed. It closes l.
func (s *Server) Serve(l net.Listener) error {
	maxLine := s.options.MaxHeaderBytes + headSlop
	if s.tls != nil {
		l = front.TLSListener(l, s.tls, s.options.HeaderTimeout, maxLine)
	} else {
		l = front.Listener(l, maxLine)
	}
	return s.http.Serve(l)
}

// Shutdown stops accepting and returns when every connection is idle, or with
// ctx's error.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// Close closes every connection.
func (s *Server) Close() error { return s.http.Close() }
