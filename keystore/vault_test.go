package keystore

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func vault(t *testing.T, from int64, ids ...string) *Vault {
	t.Helper()
	o := VaultOptions{CompressFrom: from}
	for _, id := range ids {
		o.Keys = append(o.Keys, SealKey{id, bytes.Repeat([]byte(id[:1]), 32)})
	}
	v, err := NewVault(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func response(body []byte) *Outcome {
	return &Outcome{
		Source: FromResponse, Status: 201, BodySize: int64(len(body)), BodySHA256: "d1g3st", Retained: true,
		Header: []Field{{"Content-Type", "text/plain"}, {"Location", "/SECRET/1"}}, Trailer: []Field{{"X-Sum", "SECRET"}},
	}
}

// stored writes a response and reads it back as a ledger would.
func stored(t *testing.T, v *Vault, r Record, o *Outcome, body []byte) Reply {
	t.Helper()
	out, b, err := v.Store(&r, o, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Outcome = out
	back, err := Decode(r.ID, Columns{Version: 3, Writer: "w", State: Completed, Updated: 5}, Encode(&r))
	if err != nil {
		t.Fatal(err)
	}
	return Reply{Record: back, Body: b}
}

func operationRecord(key, operation string) Record {
	return Record{ID: ID{"scope", key}, Operation: operation, Fingerprint: "raw1:x"}
}

func TestAVaultGivesBackWhatItWasGiven(t *testing.T) {
	random := make([]byte, 10_000)
	rand.Read(random)
	for name, body := range map[string][]byte{"none": nil, "small": []byte("SECRET"), "text": []byte(strings.Repeat("SECRET text, ", 2000)), "random": random} {
		for how, v := range map[string]*Vault{"plain": vault(t, 0), "compressed": vault(t, 1), "sealed": vault(t, 0, "a"), "both": vault(t, 1, "a")} {
			o := response(body)
			rep := stored(t, v, operationRecord("k", "op"), o, body)
			sealed := how == "sealed" || how == "both"
			if sealed && (bytes.Contains(rep.Body, []byte("SECRET")) || bytes.Contains(Encode(&rep.Record), []byte("SECRET")) || bytes.Contains(Encode(&rep.Record), []byte("d1g3st"))) {
				t.Errorf("%s, %s: it can be read without the key", name, how)
			}
			if name == "text" && (how == "compressed" || how == "both") && len(rep.Body) > len(body)/10 {
				t.Errorf("%s, %s: %d bytes of %d", name, how, len(rep.Body), len(body))
			}
			if name == "random" && len(rep.Body) > len(body)+64 {
				t.Errorf("%s, %s: it grew to %d bytes", name, how, len(rep.Body))
			}
			if err := v.Open(&rep); err != nil {
				t.Errorf("%s, %s: %v", name, how, err)
				continue
			}
			if !bytes.Equal(rep.Body, body) || !reflect.DeepEqual(rep.Record.Outcome, o) {
				t.Errorf("%s, %s: got %+v and %d bytes", name, how, rep.Record.Outcome, len(rep.Body))
			}
		}
	}
}

func TestAnEncodedBodyIsNotCompressedAgain(t *testing.T) {
	o := response(nil)
	o.Header = append(o.Header, Field{"Content-Encoding", "gzip"})
	body := bytes.Repeat([]byte("a"), 1000)
	o.BodySize = 1000
	if out, b, _ := vault(t, 1).Store(&Record{}, o, body); out.Coding != "" || len(b) != 1000 {
		t.Errorf("%q, %d bytes", out.Coding, len(b))
	}
}

func TestASealIsForOneOperationAlone(t *testing.T) {
	v := vault(t, 0, "a")
	body := []byte("the body of one")
	good := stored(t, v, operationRecord("k", "op"), response(body), body)
	for name, change := range map[string]func(*Reply){
		"another key":       func(r *Reply) { r.Record.Key = "k2" },
		"another scope":     func(r *Reply) { r.Record.Scope = "s2" },
		"another operation": func(r *Reply) { r.Record.Operation = "op2" },
		"another key's operation": func(r *Reply) {
			*r = stored(t, v, operationRecord("k2", "op2"), response(nil), nil)
			r.Record.Key = "k"
		},
		"a changed byte":         func(r *Reply) { r.Body[len(r.Body)/2] ^= 1 },
		"a changed header":       func(r *Reply) { r.Record.Outcome.Sealed[20] ^= 1 },
		"a cut body":             func(r *Reply) { r.Body = r.Body[:10] },
		"parts exchanged":        func(r *Reply) { r.Body, r.Record.Outcome.Sealed = r.Record.Outcome.Sealed, r.Body },
		"another key of that id": func(r *Reply) { r.Record.Outcome.SealKey = "b" },
		"a key that is gone":     func(r *Reply) { r.Record.Outcome.SealKey = "z" },
	} {
		rep := Reply{Record: good.Record, Body: bytes.Clone(good.Body)}
		o := *good.Record.Outcome
		o.Sealed = bytes.Clone(o.Sealed)
		rep.Record.Outcome = &o
		change(&rep)
		if err := vault(t, 0, "a", "b").Open(&rep); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
		if rep.Record.Outcome.SealKey == "" {
			t.Errorf("%s: what could not be opened was changed", name)
		}
	}
}

func TestKeysRotate(t *testing.T) {
	body := []byte("x")
	old := stored(t, vault(t, 0, "a"), operationRecord("k", "op"), response(body), body)
	both := vault(t, 0, "b", "a")
	if rep := old; both.Open(&rep) != nil {
		t.Error("the old key does not open any more")
	}
	now := stored(t, both, operationRecord("k", "op"), response(body), body)
	if now.Record.Outcome.SealKey != "b" {
		t.Errorf("sealed with %q", now.Record.Outcome.SealKey)
	}
	if rep := now; vault(t, 0, "a").Open(&rep) == nil {
		t.Error("the old key opens what the new one sealed")
	}
	// Switched off, what was sealed stays so, and what is new is plain.
	if out, _, _ := vault(t, 0).Store(&Record{}, response(body), body); out.SealKey != "" {
		t.Error("sealed without a key")
	}
}

// TestOneResponseSealedTwiceIsTwoTexts: nothing shows that two responses are equal.
func TestOneResponseSealedTwiceIsTwoTexts(t *testing.T) {
	v := vault(t, 0, "a")
	body := []byte("the same")
	one, two := stored(t, v, operationRecord("k", "op"), response(body), body), stored(t, v, operationRecord("k", "op"), response(body), body)
	if bytes.Equal(one.Body, two.Body) || bytes.Equal(one.Record.Outcome.Sealed, two.Record.Outcome.Sealed) {
		t.Error("they are equal")
	}
}

func TestADamagedCompressedBodyIsNoResponse(t *testing.T) {
	v := vault(t, 1)
	body := bytes.Repeat([]byte("a"), 5000)
	good := stored(t, v, operationRecord("k", "op"), response(body), body)
	for name, change := range map[string]func(*Reply){
		"cut":          func(r *Reply) { r.Body = r.Body[:len(r.Body)-1] },
		"another size": func(r *Reply) { r.Record.Outcome.BodySize-- },
		"a bomb": func(r *Reply) {
			r.Body = v.zip.EncodeAll(make([]byte, 64<<20), nil)
		},
		"no such coding": func(r *Reply) { r.Record.Outcome.Coding = "lz" },
		"something else": func(r *Reply) { r.Body = []byte("hello") },
	} {
		o := *good.Record.Outcome
		rep := Reply{Record: good.Record, Body: bytes.Clone(good.Body)}
		rep.Record.Outcome = &o
		change(&rep)
		if err := v.Open(&rep); err == nil || errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysThatCannotSealAreRefused(t *testing.T) {
	for _, keys := range [][]SealKey{
		{{"", make([]byte, 32)}}, {{"a b", make([]byte, 32)}}, {{"a", make([]byte, 16)}}, {{"a", make([]byte, 32)}, {"a", make([]byte, 32)}},
	} {
		if _, err := NewVault(VaultOptions{Keys: keys}); err == nil {
			t.Errorf("%v was taken", keys[0].ID)
		}
	}
	secret := "0123456789abcdef0123456789abcde"
	if _, err := NewVault(VaultOptions{Keys: []SealKey{{"a", []byte(secret)}}}); err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), hex.EncodeToString([]byte(secret))) {
		t.Errorf("%v", err)
	}
}

// TestAnOlderVersionDoesNotReplayWhatItCannotRead: it takes the form for one it
// does not know.
func TestAnOlderVersionDoesNotReplayWhatItCannotRead(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 100)
	for name, c := range map[string]struct {
		v    *Vault
		want uint64
	}{"plain": {vault(t, 0), plainFormat}, "compressed": {vault(t, 1), format}, "sealed": {vault(t, 0, "a"), format}} {
		r := operationRecord("k", "op")
		r.Outcome, _, _ = c.v.Store(&r, response(body), body)
		if b := Encode(&r); uint64(b[1]) != c.want {
			t.Errorf("%s: form %d, want %d", name, b[1], c.want)
		}
	}
	if b := Encode(&Record{Operation: "op", InDoubt: true}); b[1] != format {
		t.Errorf("a resend: form %d", b[1])
	}
}

func BenchmarkVault(b *testing.B) {
	body := []byte(strings.Repeat(`{"id":"ch_000000000000000001","amount":1999,"currency":"eur","status":"succeeded"},`, 100))
	for name, o := range map[string]VaultOptions{"plain": {}, "compress": {CompressFrom: 1}, "seal": {Keys: []SealKey{{"a", make([]byte, 32)}}}} {
		v, err := NewVault(o)
		if err != nil {
			b.Fatal(err)
		}
		r := operationRecord("k", "op")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Store(&r, response(body), body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
