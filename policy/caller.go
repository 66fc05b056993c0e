package policy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// ScopeDefault is the scope of every request when no callers are configured.
const ScopeDefault = "default"

// minTokenLength, in bytes: 16 random bytes cannot be guessed.
const minTokenLength = 16

// Errors of BearerToken. Neither repeats what was sent.
var (
	ErrTokenMissing   = errors.New("no caller token; send one as: Bearer <token>")
	ErrTokenMalformed = errors.New("the caller token is not one value of the form: Bearer <token>")
)

// Caller is someone who may use Fencepost. The name is the scope of its keys, not
// the token: a token that is replaced between two retries must not make a
// duplicate (DESIGN section 8). Printing, logging or marshalling a Caller leaves
// the token out.
type Caller struct {
	Name  string
	Token string `json:"-"`
}

// String gives the name, and says that there is a token.
func (c Caller) String() string { return c.Name + " [token redacted]" }

// GoString is String: %#v would print the token otherwise.
func (c Caller) GoString() string { return c.String() }

// LogValue implements slog.LogValuer.
func (c Caller) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Callers is the set of configured callers. It is immutable.
type Callers struct {
	known []knownCaller
}

// knownCaller keeps a digest, so that a dump of the process's values or a careless
// %v gives no token away.
type knownCaller struct {
	name   string
	digest [sha256.Size]byte
}

// NewCallers checks the callers and reports all problems at once. An empty list is
// valid: see Identify.
//
// A name is 1 to 64 letters, digits, dots, underscores and hyphens. Names are
// unique without regard to case, because people read them so. "default" would open
// the records made before callers were configured to one of them, and "anonymous"
// would read in a log as nobody: both are refused. A token is at least 16 bytes of
// visible ASCII, so that it fits a header field; tokens are unique, or one caller
// would be taken for another.
func NewCallers(callers []Caller) (*Callers, error) {
	c := &Callers{known: make([]knownCaller, 0, len(callers))}
	var problems []error
	names, tokens := map[string]bool{}, map[[sha256.Size]byte]string{}
	for i, caller := range callers {
		// The name is only repeated once it is known to be one: the two fields are
		// easily swapped, and then it is the token.
		label := fmt.Sprintf("caller %d", i+1)
		bad := func(reason string) { problems = append(problems, errors.New(label+": "+reason)) }

		name := strings.ToLower(caller.Name)
		switch {
		case !isName(caller.Name):
			bad("the name must be 1 to 64 letters, digits, dots, underscores or hyphens")
		case name == ScopeDefault, name == "anonymous":
			bad("the names default and anonymous are reserved")
		case names[name]:
			bad("the name " + caller.Name + " is already taken (names do not differ by case)")
		default:
			label = "caller " + caller.Name
		}
		names[name] = true

		digest := sha256.Sum256([]byte(caller.Token))
		switch other, taken := tokens[digest]; {
		case len(caller.Token) < minTokenLength:
			bad(fmt.Sprintf("the token is shorter than %d bytes", minTokenLength))
		case !allVisible(caller.Token):
			bad("the token has a space, line break, control or non-ASCII character")
		case taken:
			bad("the token is also that of " + other)
		default:
			tokens[digest] = label
		}
		c.known = append(c.known, knownCaller{caller.Name, digest})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return c, nil
}

// Identify gives the scope of the caller with this token; ok is false when there is
// none. With no callers configured every request has ScopeDefault, whatever token
// it brings: whether that may be is decided where the listeners are (DESIGN
// section 8), not here.
//
// The time taken tells nothing about any token. What is compared is SHA-256
// digests, of which a guesser cannot choose a part, each in constant time; and
// every caller is looked at, so the position of a match does not show either. A map
// would be as hard to attack in practice, but its timing is not ours to vouch for,
// and callers are few: a hundred cost about 4 µs.
func (c *Callers) Identify(token string) (scope string, ok bool) {
	if len(c.known) == 0 {
		return ScopeDefault, true
	}
	digest := sha256.Sum256([]byte(token))
	match := -1
	for i := range c.known {
		equal := subtle.ConstantTimeCompare(digest[:], c.known[i].digest[:])
		match = subtle.ConstantTimeSelect(equal, i, match)
	}
	if match < 0 {
		return "", false
	}
	return c.known[match].name, true
}

// BearerToken reads the token from the values of a credentials field
// (Fencepost-Authorization or Proxy-Authorization): exactly one, `Bearer <token>`,
// the scheme in any case (RFC 9110 section 11.1, RFC 6750 section 2.1).
//
// Errors: ErrTokenMissing for no value, ErrTokenMalformed for anything else,
// another scheme included.
func BearerToken(values []string) (string, error) {
	if len(values) == 0 {
		return "", ErrTokenMissing
	}
	scheme, token, found := strings.Cut(strings.Trim(values[0], " \t"), " ")
	token = strings.TrimLeft(token, " ") // RFC 6750 allows more than one space
	if len(values) > 1 || !found || !equalFold(scheme, "Bearer") || !allVisible(token) {
		return "", ErrTokenMalformed
	}
	return token, nil
}
