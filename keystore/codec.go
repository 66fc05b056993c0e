package keystore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The stored form of a record is a Protocol Buffers message, written field by
// field with protowire: a form that is small and quick to read, and whose rules
// for living with other versions are well known. `protoc --decode_raw` shows one.
//
// Compatibility: a field's number and meaning never change, and numbers are not
// used again. Fields may be added; a version that does not know one skips it.
// States and events are stored by their number, and new ones get new numbers.
// What an older version could not read safely raises format, and [Decode]
// refuses it.
const (
	format = 2
	// plainFormat is what a record says that older versions read rightly: it has
	// neither a sealed nor a compressed response, which they would replay as it
	// lies, nor a send in doubt before the current one, which they would forget.
	plainFormat = 1

	fFormat      = 1
	fOperation   = 2
	fFingerprint = 3
	fMethod      = 4
	fScheme      = 5
	fHost        = 6
	fPath        = 7
	fQuery       = 8
	fRoute       = 9
	fDerived     = 10
	fAttempt     = 11
	fAttemptID   = 12
	fOwner       = 13
	fLeaseRun    = 14
	fLeaseToken  = 15
	fReserved    = 16
	fDispatched  = 17
	fSettled     = 18
	fOutcome     = 19
	fTombstone   = 20
	fCaptured    = 21 // repeated: name, value
	fHistory     = 22 // repeated
	fEvidence    = 23 // repeated
	fFirstSent   = 24
	fProbing     = 25
	fProbes      = 26
	fInDoubt     = 27

	oSource   = 1
	oStatus   = 2
	oHeader   = 3 // repeated: name, value
	oTrailer  = 4 // repeated: name, value
	oBodySize = 5
	oSHA256   = 6
	oRetained = 7
	oCoding   = 8
	oSealKey  = 9
	oSealed   = 10

	pName  = 1
	pValue = 2

	hVersion = 1
	hAt      = 2
	hFrom    = 3
	hTo      = 4
	hEvent   = 5
	hBy      = 6
	hAttempt = 7
	hWhy     = 8

	eAt      = 1
	eAttempt = 2
	eBy      = 3
	eStatus  = 4
	eWhy     = 5
)

// Columns are the parts of a record that a store keeps by themselves, because
// it compares or sorts by them.
type Columns struct {
	Version  uint64
	Writer   string
	State    State
	Updated  Instant
	Deadline Instant
	Expires  Instant
}

// encoder appends fields; a zero value is left out.
type encoder []byte

func (b *encoder) text(n protowire.Number, s string) {
	if s != "" {
		*b = protowire.AppendString(protowire.AppendTag(*b, n, protowire.BytesType), s)
	}
}

func (b *encoder) number(n protowire.Number, v uint64) {
	if v != 0 {
		*b = protowire.AppendVarint(protowire.AppendTag(*b, n, protowire.VarintType), v)
	}
}

// instant is zigzag-coded: StampNow is negative.
func (b *encoder) instant(n protowire.Number, i Instant) {
	b.number(n, protowire.EncodeZigZag(int64(i)))
}

func (b *encoder) flag(n protowire.Number, v bool) {
	if v {
		b.number(n, 1)
	}
}

// message appends what f appends as one nested message. Most are shorter than
// 128 bytes, so one byte is kept for the length and made more when it must be.
func (b *encoder) message(n protowire.Number, f func(*encoder)) {
	*b = append(protowire.AppendTag(*b, n, protowire.BytesType), 0)
	start := len(*b)
	f(b)
	size := len(*b) - start
	if size < 0x80 {
		(*b)[start-1] = byte(size)
		return
	}
	body := slices.Clone((*b)[start:])
	*b = append(protowire.AppendVarint((*b)[:start-1], uint64(size)), body...)
}

func (b *encoder) fields(n protowire.Number, fs []Field) {
	for i := range fs {
		b.message(n, func(b *encoder) {
			b.text(pName, fs[i].Name)
			b.text(pValue, fs[i].Value)
		})
	}
}

// outcomeDetail appends what a [Vault] seals of an outcome.
func (b *encoder) outcomeDetail(o *Outcome) {
	b.fields(oHeader, o.Header)
	b.fields(oTrailer, o.Trailer)
	b.text(oSHA256, o.BodySHA256)
}

func formatOf(r *Record) uint64 {
	if r.InDoubt {
		return format
	}
	if o := r.Outcome; o != nil && (o.Coding != "" || o.SealKey != "") {
		return format
	}
	return plainFormat
}

// Encode returns the stored form of r without its [Columns]. Instants that are
// [StampNow] stay so in it: the moment of the write is the Updated column, and
// [Decode] puts it back.
func Encode(r *Record) []byte {
	b := make(encoder, 0, 512+160*len(r.History))
	b.number(fFormat, formatOf(r))
	b.text(fOperation, r.Operation)
	b.text(fFingerprint, r.Fingerprint)
	b.text(fMethod, r.Method)
	b.text(fScheme, r.Target.Scheme)
	b.text(fHost, r.Target.Host)
	b.text(fPath, r.Target.Path)
	b.text(fQuery, r.Target.Query)
	b.text(fRoute, r.Route)
	b.flag(fDerived, r.Derived)
	b.number(fAttempt, uint64(r.Attempt))
	b.text(fAttemptID, r.AttemptID)
	b.text(fOwner, r.Owner)
	if r.Lease != nil {
		b.text(fLeaseRun, r.Lease.Run)
		b.number(fLeaseToken, r.Lease.Token)
	}
	b.instant(fReserved, r.ReservedAt)
	b.instant(fDispatched, r.DispatchedAt)
	b.instant(fSettled, r.SettledAt)
	if o := r.Outcome; o != nil {
		b.message(fOutcome, func(b *encoder) {
			b.text(oSource, string(o.Source))
			b.number(oStatus, uint64(o.Status))
			b.outcomeDetail(o)
			b.number(oBodySize, uint64(o.BodySize))
			b.flag(oRetained, o.Retained)
			b.text(oCoding, o.Coding)
			b.text(oSealKey, o.SealKey)
			b.text(oSealed, string(o.Sealed))
		})
	}
	b.flag(fTombstone, r.Tombstone)
	b.instant(fFirstSent, r.FirstSentAt)
	b.text(fProbing, r.Probing)
	b.number(fProbes, uint64(r.Probes))
	b.flag(fInDoubt, r.InDoubt)
	for _, name := range slices.Sorted(maps.Keys(r.Captured)) {
		b.message(fCaptured, func(b *encoder) {
			b.text(pName, name)
			b.text(pValue, r.Captured[name])
		})
	}
	for i := range r.History {
		h := &r.History[i]
		b.message(fHistory, func(b *encoder) {
			b.number(hVersion, h.Version)
			b.instant(hAt, h.At)
			b.number(hFrom, uint64(h.From))
			b.number(hTo, uint64(h.To))
			b.number(hEvent, uint64(h.Event))
			b.text(hBy, h.By)
			b.text(hAttempt, h.Attempt)
			b.text(hWhy, h.Why)
		})
	}
	for i := range r.Evidence {
		e := &r.Evidence[i]
		b.message(fEvidence, func(b *encoder) {
			b.instant(eAt, e.At)
			b.text(eAttempt, e.Attempt)
			b.text(eBy, e.By)
			b.number(eStatus, uint64(e.Status))
			b.text(eWhy, e.Why)
		})
	}
	return b
}

// field is one decoded field: a number or a part of the text it stands in.
type field struct {
	num  protowire.Number
	v    uint64
	text string
}

func (f field) instant() Instant { return Instant(protowire.DecodeZigZag(f.v)) }

var errDamaged = errors.New("it does not read as a record")

// each calls f for every field of a message. The text of fields is shared with s.
func each(s string, b []byte, f func(field) error) error {
	for at := 0; at < len(b); {
		num, kind, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return errDamaged
		}
		at += n
		x := field{num: num}
		switch kind {
		case protowire.VarintType:
			x.v, n = protowire.ConsumeVarint(b[at:])
			if n < 0 {
				return errDamaged
			}
		case protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return errDamaged
			}
			x.text = s[at+n-len(v) : at+n]
		default:
			if n = protowire.ConsumeFieldValue(num, kind, b[at:]); n < 0 {
				return errDamaged
			}
		}
		at += n
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// pair reads a name and a value.
func pair(s string) (name, value string, err error) {
	err = each(s, []byte(s), func(x field) error {
		switch x.num {
		case pName:
			name = x.text
		case pValue:
			value = x.text
		}
		return nil
	})
	return name, value, err
}

// Decode is the inverse of [Encode]. It refuses a form that is damaged or was
// written by a later version that knows this one cannot read it.
func Decode(id ID, c Columns, b []byte) (Record, error) {
	r := Record{ID: id, Version: c.Version, Writer: c.Writer, State: c.State, Deadline: c.Deadline, Expires: c.Expires}
	var stored uint64
	err := each(string(b), b, func(x field) error { return r.set(x, &stored) })
	switch {
	case err == nil && stored > format:
		return Record{}, fmt.Errorf("keystore: the record of operation %q in scope %q has stored form %d and this version reads %d; run the version of Fencepost that wrote it", id.Key, id.Scope, stored, format)
	case err == nil && stored < plainFormat:
		err = errDamaged
	}
	if err == nil && (c.State < Reserved || c.State > Abandoned) {
		err = fmt.Errorf("its state %d is not one", c.State)
	}
	if err != nil {
		return Record{}, fmt.Errorf("keystore: the record of operation %q in scope %q is damaged: %w", id.Key, id.Scope, err)
	}
	r.stamp(c.Updated)
	return r, nil
}

// set puts one field of the stored form into r.
func (r *Record) set(x field, stored *uint64) error {
	switch x.num {
	case fFormat:
		*stored = x.v
	case fOperation:
		r.Operation = x.text
	case fFingerprint:
		r.Fingerprint = x.text
	case fMethod:
		r.Method = x.text
	case fScheme:
		r.Target.Scheme = x.text
	case fHost:
		r.Target.Host = x.text
	case fPath:
		r.Target.Path = x.text
	case fQuery:
		r.Target.Query = x.text
	case fRoute:
		r.Route = x.text
	case fDerived:
		r.Derived = x.v != 0
	case fAttempt:
		r.Attempt = int(x.v)
	case fAttemptID:
		r.AttemptID = x.text
	case fOwner:
		r.Owner = x.text
	case fLeaseRun:
		r.lease().Run = x.text
	case fLeaseToken:
		r.lease().Token = x.v
	case fReserved:
		r.ReservedAt = x.instant()
	case fDispatched:
		r.DispatchedAt = x.instant()
	case fSettled:
		r.SettledAt = x.instant()
	case fOutcome:
		r.Outcome = &Outcome{}
		return each(x.text, []byte(x.text), r.Outcome.set)
	case fFirstSent:
		r.FirstSentAt = x.instant()
	case fProbing:
		r.Probing = x.text
	case fProbes:
		r.Probes = int(x.v)
	case fInDoubt:
		r.InDoubt = x.v != 0
	case fTombstone:
		r.Tombstone = x.v != 0
	case fCaptured:
		name, value, err := pair(x.text)
		if r.Captured == nil {
			r.Captured = make(map[string]string)
		}
		r.Captured[name] = value
		return err
	case fHistory:
		if r.History == nil {
			r.History = make([]Transition, 0, 4)
		}
		r.History = append(r.History, Transition{})
		return each(x.text, []byte(x.text), r.History[len(r.History)-1].set)
	case fEvidence:
		r.Evidence = append(r.Evidence, Evidence{})
		return each(x.text, []byte(x.text), r.Evidence[len(r.Evidence)-1].set)
	}
	return nil
}

func (r *Record) lease() *LeaseRef {
	if r.Lease == nil {
		r.Lease = &LeaseRef{}
	}
	return r.Lease
}

func (o *Outcome) set(x field) error {
	switch x.num {
	case oSource:
		o.Source = Source(x.text)
	case oStatus:
		o.Status = int(x.v)
	case oHeader, oTrailer:
		name, value, err := pair(x.text)
		if x.num == oHeader {
			o.Header = append(o.Header, Field{name, value})
		} else {
			o.Trailer = append(o.Trailer, Field{name, value})
		}
		return err
	case oBodySize:
		o.BodySize = int64(x.v)
	case oSHA256:
		o.BodySHA256 = x.text
	case oRetained:
		o.Retained = x.v != 0
	case oCoding:
		o.Coding = x.text
	case oSealKey:
		o.SealKey = x.text
	case oSealed:
		o.Sealed = []byte(x.text)
	}
	return nil
}

func (h *Transition) set(x field) error {
	switch x.num {
	case hVersion:
		h.Version = x.v
	case hAt:
		h.At = x.instant()
	case hFrom:
		h.From = State(x.v)
	case hTo:
		h.To = State(x.v)
	case hEvent:
		h.Event = EventKind(x.v)
	case hBy:
		h.By = x.text
	case hAttempt:
		h.Attempt = x.text
	case hWhy:
		h.Why = x.text
	}
	return nil
}

func (e *Evidence) set(x field) error {
	switch x.num {
	case eAt:
		e.At = x.instant()
	case eAttempt:
		e.Attempt = x.text
	case eBy:
		e.By = x.text
	case eStatus:
		e.Status = int(x.v)
	case eWhy:
		e.Why = x.text
	}
	return nil
}
