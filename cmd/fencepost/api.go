package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// apiTimeout bounds one call of a running proxy's API.
const apiTimeout = 30 * time.Second

// callAPI makes one call of a running proxy's API: body, if not nil, as JSON, and
// the token, if any, in the named field. A problem document of the proxy's own
// becomes the error; its text is returned all the same.
func callAPI(method, url, field, token string, body any) (*http.Response, []byte, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, url, in)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		req.Header.Set(field, "Bearer "+token)
	}
	hc := &http.Client{Timeout: apiTimeout, Transport: &http.Transport{Proxy: nil, DisableCompression: true}}
	resp, err := hc.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil, nil, fmt.Errorf("no answer from the proxy: nothing listens at %s. Is `fencepost serve` running, and is this its address (--admin, --config or --url)?", req.URL.Host)
		}
		return nil, nil, fmt.Errorf("no answer from the proxy: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	// A recorded response may be a problem of the upstream's; ours say so.
	if strings.HasPrefix(resp.Header.Get("Proxy-Status"), "fencepost; error=") {
		var p struct{ Title, Detail string }
		if json.Unmarshal(b, &p) == nil && p.Title != "" {
			return resp, b, fmt.Errorf("%s: %s", p.Title, p.Detail)
		}
	}
	return resp, b, nil
}
