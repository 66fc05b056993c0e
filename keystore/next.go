package keystore

// Next is the transition function: it says whether ev may happen to cur at the
// store's moment now, and what is to be written if so. It is pure; every change
// of every record goes through it. cur is nil where no record is known.
//
// now and gone are used for one question only, whether an owner may still be
// alive (see [Record.Reads]). now may be a little old: an owner that came to
// life since then has moved the version, and the store refuses the write.
func Next(cur *Record, ev Event, now Instant, gone OwnerGone) (Write, Refusal) {
	if ev.Writer == "" || ev.By == "" {
		return Write{}, RefusedEvent
	}
	if ev.Kind == Reserve || ev.Kind == Dispatch {
		return reserve(cur, ev)
	}
	if cur == nil {
		return Write{}, RefusedState
	}
	view := cur.Reads(now, gone)
	mine := ev.Attempt != "" && ev.Attempt == cur.AttemptID

	switch ev.Kind {
	case TakeOver:
		if view.State != Reserved {
			return Write{}, RefusedState
		}
		if !view.Free {
			return Write{}, RefusedHeld
		}
		if ev.Attempt == "" || mine {
			return Write{}, RefusedEvent
		}
		w := change(cur, ev, Reserved)
		w.begin(ev)
		return w, Allowed

	case Mark:
		// A reservation that lapsed but that nobody took over is still its
		// attempt's own: nothing was sent and nobody else is at it.
		if cur.State != Reserved {
			return Write{}, RefusedState
		}
		if !mine || cur.Owner == "" {
			return Write{}, RefusedSuperseded
		}
		w := change(cur, ev, Dispatched)
		w.Record.DispatchedAt = StampNow
		if cur.FirstSentAt.IsZero() {
			w.Record.FirstSentAt = StampNow
		}
		w.DeadlineIn = ev.Silence
		w.guard(cur.Lease, ev.ExternalLease)
		w.BeforeSend = true
		return w, Allowed

	case Resend:
		if view.State != Unknown {
			return Write{}, RefusedState
		}
		if ev.Attempt == "" || mine {
			return Write{}, RefusedEvent
		}
		w := change(cur, ev, Dispatched)
		w.begin(ev)
		w.Record.DispatchedAt, w.Record.InDoubt = StampNow, true
		w.Record.Outcome, w.Record.Probes = nil, 0
		w.BodyOp = BodyDrop
		w.ExpiresIn = 0
		w.BeforeSend = true
		return w, Allowed

	case Extend:
		if cur.State != Reserved && cur.State != Dispatched {
			return Write{}, RefusedState
		}
		if !mine || cur.Owner == "" {
			return Write{}, RefusedSuperseded
		}
		w := bump(cur, ev)
		w.DeadlineIn = ev.Silence
		if cur.State == Reserved {
			w.ExpiresIn = ev.Keep
		}
		return w, Allowed

	case Complete:
		if !mine {
			return Write{}, RefusedSuperseded
		}
		if (cur.State != Dispatched && cur.State != Unknown) || ev.Outcome == nil {
			return Write{}, RefusedState
		}
		w := change(cur, ev, Completed)
		w.settle(ev)
		if view.State == Unknown {
			w.Record.Outcome.Source = FromLateResponse
		}
		return w, Allowed

	case Doubt:
		if !mine {
			return Write{}, RefusedSuperseded
		}
		if cur.State != Dispatched {
			return Write{}, RefusedState
		}
		w := change(cur, ev, Unknown)
		w.Record.Owner = ""
		if ev.Outcome != nil {
			w.answer(ev)
		}
		return w, Allowed

	case Release:
		if !mine {
			return Write{}, RefusedSuperseded
		}
		if cur.State != Reserved && cur.State != Dispatched && cur.State != Unknown {
			return Write{}, RefusedState
		}
		if cur.InDoubt {
			// This attempt came to nothing. What the one before it did is as open as ever.
			w := change(cur, ev, Unknown)
			w.Record.Owner = ""
			if cur.State == Unknown {
				w.Record.Probing = cur.Probing
				w.keepTimes(cur)
			}
			return w, Allowed
		}
		return free(cur, ev), Allowed

	case Confirm, Resolve:
		if view.State != Unknown || ev.Outcome == nil {
			return Write{}, RefusedState
		}
		w := change(cur, ev, Completed)
		w.settle(ev)
		return w, Allowed

	case Clear:
		if view.State != Unknown {
			return Write{}, RefusedState
		}
		if ev.Attempt != "" && !mine {
			// What is known is about an earlier attempt, and proves nothing of this one.
			return Write{}, RefusedSuperseded
		}
		return free(cur, ev), Allowed

	case Abandon:
		if view.State != Unknown && !(view.State == Reserved && view.Free) {
			return Write{}, RefusedState
		}
		w := change(cur, ev, Abandoned)
		w.Record.Owner = ""
		w.Record.SettledAt = StampNow
		w.ExpiresIn = ev.Keep
		return w, Allowed

	case Note:
		w := bump(cur, ev)
		e := Evidence{At: StampNow, Attempt: ev.Attempt, By: ev.By, Why: ev.Why}
		if ev.Outcome != nil {
			e.Status = ev.Outcome.Status
		}
		w.Record.Evidence = appendBounded(cur.Evidence, e, MaxEvidence)
		w.keepTimes(cur)
		return w, Allowed

	case Probe:
		if view.State != Unknown {
			return Write{}, RefusedState
		}
		if cur.State == Unknown && cur.Probing != "" && !cur.Deadline.Reached(now) {
			return Write{}, RefusedHeld
		}
		if ev.Due && cur.State == Unknown && !cur.Deadline.IsZero() && !cur.Deadline.Reached(now) {
			// Somebody looked since the schedule was read.
			return Write{}, RefusedNotDue
		}
		w := bump(cur, ev)
		if cur.State == Dispatched {
			ev.Why = "its owner fell silent after the send"
			w = change(cur, ev, Unknown)
			w.Record.Owner = ""
		}
		w.Record.Probing = ev.By
		w.DeadlineIn = ev.Silence
		return w, Allowed

	case Probed:
		if cur.State != Unknown || cur.Probing != ev.By {
			return Write{}, RefusedSuperseded
		}
		w := bump(cur, ev)
		w.Record.Probing = ""
		w.Record.Probes++
		w.Record.Evidence = appendBounded(cur.Evidence, Evidence{At: StampNow, By: ev.By, Attempt: cur.AttemptID, Why: ev.Why}, MaxEvidence)
		w.DeadlineIn = ev.Silence
		return w, Allowed

	case Bury:
		if !cur.State.Settled() || cur.Tombstone || !cur.Expires.Reached(now) {
			return Write{}, RefusedState
		}
		w := change(cur, ev, cur.State)
		w.Record.Tombstone = true
		w.Record.Outcome = nil
		w.Record.Captured = nil
		w.Record.Evidence = nil
		w.BodyOp = BodyDrop
		w.ExpiresIn = ev.Keep
		return w, Allowed
	}
	return Write{}, RefusedEvent
}

// reserve makes the first version of a record.
func reserve(cur *Record, ev Event) (Write, Refusal) {
	if cur != nil {
		return Write{}, RefusedExists
	}
	if ev.New == nil || ev.New.Key == "" || ev.New.Scope == "" || ev.New.Operation == "" || ev.New.Fingerprint == "" || ev.Attempt == "" {
		return Write{}, RefusedEvent
	}
	n := ev.New
	to := Reserved
	if ev.Kind == Dispatch {
		to = Dispatched
	}
	w := change(&Record{
		ID: n.ID, Operation: n.Operation, Fingerprint: n.Fingerprint, Method: n.Method,
		Target: n.Target, Route: n.Route, Derived: n.Derived, Captured: n.Captured,
	}, ev, to)
	w.begin(ev)
	if to == Dispatched {
		w.Record.DispatchedAt, w.Record.FirstSentAt = StampNow, StampNow
		w.ExpiresIn = 0
		w.BeforeSend = true
	}
	return w, Allowed
}

// begin starts an attempt on a reservation.
func (w *Write) begin(ev Event) {
	r := &w.Record
	r.Attempt++
	r.AttemptID = ev.Attempt
	r.Owner = ev.By
	r.Lease = ev.Lease
	r.ReservedAt, r.DispatchedAt = StampNow, 0
	w.DeadlineIn, w.ExpiresIn = ev.Silence, ev.Keep
	w.guard(ev.Lease, ev.ExternalLease)
}

// free ends an attempt that is proved not to have been applied. The key stays
// bound to its fingerprint; whoever comes next may send once.
func free(cur *Record, ev Event) Write {
	w := change(cur, ev, Reserved)
	r := &w.Record
	r.Owner, r.Lease, r.Outcome, r.Probes = "", nil, nil, 0
	r.DispatchedAt, r.InDoubt = 0, false
	w.BodyOp = BodyDrop
	w.ExpiresIn = ev.Keep
	return w
}

// settle ends the operation with an outcome.
func (w *Write) settle(ev Event) {
	w.answer(ev)
	w.Record.Owner, w.Record.InDoubt = "", false
	w.Record.SettledAt = StampNow
	w.ExpiresIn = ev.Keep
}

// answer stores what was answered.
func (w *Write) answer(ev Event) {
	o := *ev.Outcome
	w.Record.Outcome = &o
	if o.Retained && len(ev.Body) > 0 {
		w.BodyOp, w.Body = BodySet, ev.Body
	} else {
		w.BodyOp = BodyDrop
	}
}

func (w *Write) guard(l *LeaseRef, external bool) {
	if l != nil {
		w.Guard = &Guard{Run: l.Run, Token: l.Token, External: external}
	}
}

// keepTimes carries deadline and expiry over. They go to the store as
// durations, so they are measured from the version they were read at; a note
// moves them by the moments since then, which only makes them later.
func (w *Write) keepTimes(cur *Record) {
	if !cur.Deadline.IsZero() {
		w.DeadlineIn = max(cur.Deadline.Sub(cur.UpdatedAt), 1)
	}
	if !cur.Expires.IsZero() {
		w.ExpiresIn = max(cur.Expires.Sub(cur.UpdatedAt), 1)
	}
}

// bump copies cur into the next version.
func bump(cur *Record, ev Event) Write {
	r := *cur
	r.Version++
	r.Writer = ev.Writer
	r.Deadline, r.Expires = 0, 0
	return Write{Record: r}
}

// change is bump with a new state and a line in the history.
func change(cur *Record, ev Event, to State) Write {
	w := bump(cur, ev)
	w.Record.State = to
	w.Record.Probing = ""
	w.Record.History = appendBounded(cur.History, Transition{
		Version: w.Record.Version, At: StampNow, From: cur.State, To: to,
		Event: ev.Kind, By: ev.By, Attempt: ev.Attempt, Why: ev.Why,
	}, MaxHistory)
	return w
}

// appendBounded returns a new slice with v at its end. When it is full, the
// second oldest goes: the first says where it all came from.
func appendBounded[T any](s []T, v T, limit int) []T {
	out := make([]T, 0, min(len(s)+1, limit))
	if len(s) >= limit {
		out = append(out, s[0])
		s = s[len(s)-limit+2:]
	}
	return append(append(out, s...), v)
}
