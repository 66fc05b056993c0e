package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"fencepost/keystore"
	"fencepost/policy"
)

// errOverLimit says that a response is larger than what is kept.
var errOverLimit = errors.New("the response is larger than the route keeps")

// readWhole reads a response body of at most limit bytes. With errOverLimit the
// bytes read so far are returned; more is to come. Any other error means that
// the answer was cut short.
func readWhole(resp *http.Response, limit int64) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 {
		if n > limit {
			return nil, errOverLimit
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		return b, nil
	}
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return buf.Bytes(), errOverLimit
	}
	return buf.Bytes(), nil
}

// streamTypes are the media types whose parts a caller waits for one by one.
var streamTypes = []string{"text/event-stream", "application/x-ndjson", "application/stream+json", "application/json-seq", "application/grpc", "multipart/x-mixed-replace"}

// streams reports whether an answer must flow as it comes.
func streams(h http.Header) bool {
	ct, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	ct = strings.ToLower(strings.TrimSpace(ct))
	for _, t := range streamTypes {
		if ct == t || (t == "application/grpc" && strings.HasPrefix(ct, t+"+")) {
			return true
		}
	}
	return false
}

// storedFields returns the fields of h that are kept for a replay, by name and
// within a name in order.
func storedFields(h http.Header) []keystore.Field {
	names := make([]string, 0, len(h))
	n := 0
	for name, values := range h {
		if name == "Content-Length" || !policy.Storable(name) {
			continue
		}
		names = append(names, name)
		n += len(values)
	}
	slices.Sort(names)
	named := h["Connection"]
	fields := make([]keystore.Field, 0, n)
	for _, name := range names {
		if len(named) > 0 && policy.NamedInConnection(named, name) {
			continue
		}
		for _, v := range h[name] {
			fields = append(fields, keystore.Field{Name: name, Value: v})
		}
	}
	return fields
}
