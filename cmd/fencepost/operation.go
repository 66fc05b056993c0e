package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// operation is the state document of one operation, as far as people read it.
type operation struct {
	Key       string    `json:"key"`
	Scope     string    `json:"scope"`
	Operation string    `json:"operation"`
	State     string    `json:"state"`
	Stored    string    `json:"stored_state"`
	Meaning   string    `json:"meaning"`
	Version   uint64    `json:"version"`
	Attempt   int       `json:"attempt"`
	Owner     string    `json:"owner"`
	Route     string    `json:"route"`
	Method    string    `json:"method"`
	UpdatedAt time.Time `json:"updated_at"`
	Target    struct {
		Scheme, Host, Path, Query string
	} `json:"target"`
	Outcome *struct {
		Source   string
		Status   int
		BodySize int64 `json:"body_size"`
		Retained bool
	} `json:"outcome"`
	History []struct {
		Version             uint64
		At                  time.Time
		From, To, Event, By string
		Attempt, Why        string
	} `json:"history"`
	Evidence []struct {
		At      time.Time
		Attempt string
		Status  int
		Why     string
	} `json:"evidence"`
}

func (o *operation) request() string {
	s := o.Method + " " + o.Target.Scheme + "://" + o.Target.Host + o.Target.Path
	if o.Target.Query != "" {
		s += "?" + o.Target.Query
	}
	return s
}

// why is the reason of the last transition.
func (o *operation) why() string {
	if o.State == "unknown" && o.Stored == "dispatched" {
		return "its owner fell silent after the send"
	}
	if n := len(o.History); n > 0 {
		return o.History[n-1].Why
	}
	return ""
}

// describe prints everything that is known, and the history in words.
func (o *operation) describe(w io.Writer) {
	fmt.Fprintf(w, "%s  (scope %s, operation %s)\n", o.Key, o.Scope, o.Operation)
	fmt.Fprintf(w, "  %s: %s\n", strings.ToUpper(o.State), o.Meaning)
	fmt.Fprintf(w, "  request  %s  (route %s)\n", o.request(), o.Route)
	if o.Outcome != nil {
		kept := "kept"
		if !o.Outcome.Retained {
			kept = "not kept"
		}
		if o.Outcome.Status == 0 {
			fmt.Fprintf(w, "  answer   none recorded; known by %s\n", o.Outcome.Source)
		} else {
			fmt.Fprintf(w, "  answer   status %d, %d bytes, %s; known by %s\n", o.Outcome.Status, o.Outcome.BodySize, kept, o.Outcome.Source)
		}
	}
	owner := "nobody"
	if o.Owner != "" {
		owner = o.Owner
	}
	fmt.Fprintf(w, "  attempt  %d, held by %s; version %d\n", o.Attempt, owner, o.Version)
	fmt.Fprintln(w, "  history")
	for _, h := range o.History {
		fmt.Fprintf(w, "    %s  v%d  %s → %s  %s by %s", h.At.UTC().Format("2006-01-02 15:04:05.000Z"), h.Version, h.From, h.To, h.Event, h.By)
		if h.Why != "" {
			fmt.Fprintf(w, ": %s", h.Why)
		}
		fmt.Fprintln(w)
	}
	if o.State == "unknown" && o.Stored == "dispatched" {
		fmt.Fprintln(w, "    (its owner is gone, or silent past its deadline: reads unknown)")
	}
	for _, e := range o.Evidence {
		status := ""
		if e.Status != 0 {
			status = fmt.Sprintf("status %d, ", e.Status)
		}
		fmt.Fprintf(w, "  evidence %s  %sattempt %s: %s\n", e.At.UTC().Format("2006-01-02 15:04:05.000Z"), status, e.Attempt, e.Why)
	}
}

// parseResponse reads a whole HTTP/1.1 response.
func parseResponse(b []byte) (status int, header map[string]string, body []byte, err error) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, nil, err
	}
	header = make(map[string]string, len(resp.Header))
	for name := range resp.Header {
		header[name] = resp.Header.Get(name)
	}
	return resp.StatusCode, header, body, nil
}
