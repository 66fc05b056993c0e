package policy

import (
	"fmt"
	"time"
)

// Reconciler says how a provider is asked what became of an operation, and how
// its answer is read.
type Reconciler struct {
	Method string
	URL    *Template
	Header map[string]string

	Confirmed *Expr
	NotFound  *Expr
	// Complete is the provider's guarantee that a processed request is found,
	// Settle how long after the send ended in doubt "not found" may be believed.
	Complete bool
	Settle   time.Duration

	// Status and Body are the response that duplicates get once it is confirmed.
	// Without a Body none is kept.
	Status int
	Body   *Expr

	// Timeout bounds one lookup; Every is the pause between two, which grows up to
	// MaxEvery.
	Timeout  time.Duration
	Every    time.Duration
	MaxEvery time.Duration
}

// Verdict is what a lookup's answer means.
type Verdict struct {
	Evidence Evidence
	// Why says how it was read, for the history.
	Why string
	// Body is the response for duplicates, with Evidence confirmed.
	Body []byte
	// Kept says that there is one.
	Kept bool
}

// Read reads the answer to a lookup. Both conditions true, neither true, or one
// that cannot be evaluated (a field that is not there, an answer that is not
// JSON): ambiguous. Expressions guard optional fields with has().
func (r *Reconciler) Read(m *Message, o *Operation) Verdict {
	vars := map[string]any{"lookup": m.vars(), "operation": o.vars()}
	yes, err := r.Confirmed.bool(vars)
	var no bool
	if r.NotFound != nil && err == nil {
		no, err = r.NotFound.bool(vars)
	}
	said := fmt.Sprintf("the lookup answered %d", m.Status)
	switch {
	case err != nil:
		return Verdict{Evidence: EvidenceAmbiguous, Why: said + ", which the conditions cannot read: " + err.Error()}
	case yes && no:
		return Verdict{Evidence: EvidenceAmbiguous, Why: said + ", and both confirmed and not_found are true"}
	case yes:
		return r.confirmed(said, vars)
	case no:
		return Verdict{Evidence: EvidenceNotFound, Why: said + ": not found"}
	}
	return Verdict{Evidence: EvidenceAmbiguous, Why: said + ", and neither confirmed nor not_found is true"}
}

func (r *Reconciler) confirmed(said string, vars map[string]any) Verdict {
	v := Verdict{Evidence: EvidenceConfirmed, Why: said + ": confirmed"}
	if r.Body == nil {
		return v
	}
	body, err := r.Body.json(vars)
	if err != nil {
		v.Why += "; but no response could be made of it: " + err.Error()
		return v
	}
	v.Body, v.Kept = body, true
	return v
}
