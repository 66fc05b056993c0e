package policy

import "strings"

// A fingerprint names the scheme that made it. A scheme never changes what it
// hashes, nor which bodies it takes; a change is a new name, so that a record made
// before an update is compared by the rules that it was made by.
type scheme struct {
	name  string
	form  BodyKind // of the body; never BodyAuto
	keyed bool     // HMAC-SHA-256 with the Fingerprinter's key, and not SHA-256
	first bool     // raw1: neither codings nor trailers
}

// schemes are all that is known. New requests get one of those behind the first two.
//
//	raw1        method, target, chosen fields, the body's bytes
//	raw2        the same, the trailers, and the body's content codings
//	json1       method, target, chosen fields, trailers, the JSON value of the decoded body
//	form1       the same, but the fields of the decoded body
//	multipart1  the same, but the parts of the decoded body
var schemes = [...]scheme{
	{name: "raw1", form: BodyRaw, first: true},
	{name: "raw1-hmac", form: BodyRaw, first: true, keyed: true},
	{name: "raw2", form: BodyRaw},
	{name: "raw2-hmac", form: BodyRaw, keyed: true},
	{name: "json1", form: BodyJSON},
	{name: "json1-hmac", form: BodyJSON, keyed: true},
	{name: "form1", form: BodyForm},
	{name: "form1-hmac", form: BodyForm, keyed: true},
	{name: "multipart1", form: BodyMultipart},
	{name: maxScheme, form: BodyMultipart, keyed: true},
}

// maxScheme is the longest name of a scheme.
const (
	maxScheme     = "multipart1-hmac"
	maxSchemeName = len(maxScheme)
)

// schemeFor gives the scheme that new requests get.
func schemeFor(form BodyKind, keyed bool) *scheme {
	for i := range schemes {
		if s := &schemes[i]; s.form == form && s.keyed == keyed && !s.first {
			return s
		}
	}
	panic("policy: no scheme for this form of body")
}

// schemeNamed gives the scheme of a name, or nil.
func schemeNamed(name string) *scheme {
	for i := range schemes {
		if schemes[i].name == name {
			return &schemes[i]
		}
	}
	return nil
}

// SchemeOf gives the scheme that made a fingerprint, or "" for what is none.
// Fingerprints of different schemes cannot be compared: that they differ says
// nothing about the requests. See Fingerprinter.SumAs.
func SchemeOf(fp string) string {
	scheme, _, found := strings.Cut(fp, ":")
	if !found {
		return ""
	}
	return scheme
}
