package proxy

import (
	"fencepost/keystore"
)

// document is the state document of a lookup: what is known about one effect.
type document struct {
	Key       string             `json:"key"`
	Scope     string             `json:"scope"`
	Operation string             `json:"operation"`
	State     keystore.State     `json:"state"`
	Meaning   string             `json:"meaning"`
	Retry     retry              `json:"retry"`
	Stored    keystore.State     `json:"stored_state"`
	Version   uint64             `json:"version"`
	Attempt   int                `json:"attempt"`
	Owner     string             `json:"owner,omitempty"`
	Route     string             `json:"route"`
	Method    string             `json:"method"`
	Target    keystore.Target    `json:"target"`
	Derived   bool               `json:"derived_key,omitempty"`
	Lease     *keystore.LeaseRef `json:"lease,omitempty"`

	ReservedAt   keystore.Instant `json:"reserved_at"`
	DispatchedAt keystore.Instant `json:"dispatched_at"`
	SettledAt    keystore.Instant `json:"settled_at"`
	UpdatedAt    keystore.Instant `json:"updated_at"`
	Deadline     keystore.Instant `json:"deadline"`
	ExpiresAt    keystore.Instant `json:"expires_at"`
	Now          keystore.Instant `json:"now"`

	// Probes is how often the provider was asked in vain; NextProbe when it is
	// asked again.
	Probes    int              `json:"probes,omitempty"`
	NextProbe keystore.Instant `json:"next_probe"`

	Outcome  *documentOutcome      `json:"outcome,omitempty"`
	Captured map[string]string     `json:"captured,omitempty"`
	History  []keystore.Transition `json:"history"`
	Evidence []keystore.Evidence   `json:"evidence,omitempty"`
}

type documentOutcome struct {
	Source     keystore.Source `json:"source"`
	Status     int             `json:"status"`
	BodySize   int64           `json:"body_size"`
	BodySHA256 string          `json:"body_sha256,omitempty"`
	Retained   bool            `json:"retained"`
	// Response is the URL path of the recorded response, where it can be had.
	Response string `json:"response,omitempty"`
}

// describe says what a record means at the store's present moment.
func (p *Proxy) describe(rep *keystore.Reply) *document {
	r := &rep.Record
	v := r.Reads(rep.Now, p.ledger.gone)
	d := &document{
		Key: r.Key, Scope: r.Scope, Operation: r.Operation, State: v.State, Stored: r.State, Version: r.Version, Attempt: r.Attempt,
		Owner: r.Owner, Route: r.Route, Method: r.Method, Target: r.Target, Derived: r.Derived, Lease: r.Lease,
		ReservedAt: r.ReservedAt, DispatchedAt: r.DispatchedAt, SettledAt: r.SettledAt, UpdatedAt: r.UpdatedAt,
		Deadline: r.Deadline, ExpiresAt: r.Expires, Now: rep.Now,
		Captured: r.Captured, History: r.History, Evidence: r.Evidence,
	}
	if r.State == keystore.Unknown {
		d.Probes, d.NextProbe, d.Deadline = r.Probes, r.Deadline, 0
	}
	if o := r.Outcome; o != nil && !v.Tombstone {
		d.Outcome = &documentOutcome{Source: o.Source, Status: o.Status, BodySize: o.BodySize, BodySHA256: p.digestOf(rep), Retained: o.Retained}
		if o.Retained && v.State == keystore.Completed {
			d.Outcome.Response = lookupPath(r.Key) + "/response"
		}
	}
	d.Meaning, d.Retry = meaning(v, r)
	return d
}

// digestOf is the digest of a recorded body, "" where it cannot be read.
func (p *Proxy) digestOf(rep *keystore.Reply) string {
	alone := keystore.Reply{Record: rep.Record}
	if p.ledger.vault.Open(&alone) != nil {
		return ""
	}
	return alone.Record.Outcome.BodySHA256
}

// meaning says in words what a state is to whoever holds the key.
func meaning(v keystore.View, r *keystore.Record) (string, retry) {
	switch v.State {
	case keystore.Reserved:
		switch {
		case v.Free && !r.FirstSentAt.IsZero():
			return "An earlier send was not applied, by what the upstream, a lookup or an operator said. The same request may be sent once more with the same key.", retrySameKey
		case v.Free:
			return "Nothing was sent. The same request may be sent with the same key.", retrySameKey
		}
		return "A request is about to be sent.", retrySameKey
	case keystore.Dispatched:
		return "The request was sent and its answer is awaited.", retrySameKey
	case keystore.Unknown:
		return "The request was sent and its outcome is not known. It may have taken effect. It will not be sent again without evidence.", retryAfterResolution
	case keystore.Completed:
		if v.Tombstone {
			return "The operation was completed; its response is no longer kept.", retryNever
		}
		if r.Outcome != nil && !r.Outcome.Retained && r.Outcome.Source != keystore.FromResponse && r.Outcome.Source != keystore.FromLateResponse {
			return "The operation was completed; how is known by " + string(r.Outcome.Source) + ", and no response is recorded.", retryNever
		}
		if r.Outcome != nil && !r.Outcome.Retained {
			return "The operation was completed; its response was too large to keep.", retryNever
		}
		return "The operation was completed. The same request with the same key gets the recorded response.", retrySameKey
	case keystore.Abandoned:
		return "An operator decided that this operation is not to be sent (again). The history says why.", retryNever
	}
	return "", retryNever
}
