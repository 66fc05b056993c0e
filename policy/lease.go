package policy

import (
	"errors"
	"strings"

	"github.com/dunglas/httpsfv"
)

// ParseLease reads the Fencepost-Lease field, `"run-42";token=7` (DESIGN section
// 7): an RFC 9651 Item of type String or Token with one Integer parameter. A run
// is 1 to 128 visible ASCII characters; a token is positive. Errors say what is
// wrong and how to mend it, and complete the sentence "the field …".
func ParseLease(values []string) (run string, token uint64, err error) {
	if len(values) != 1 {
		return "", 0, errors.New("must come exactly once")
	}
	const form = `is not of the form "run";token=7`
	item, err := httpsfv.UnmarshalItem(values)
	if err != nil {
		return "", 0, errors.New(form)
	}
	switch v := item.Value.(type) {
	case string:
		run = v
	case httpsfv.Token:
		run = string(v)
	default:
		return "", 0, errors.New(form)
	}
	if err := CheckRun(run); err != nil {
		return "", 0, err
	}
	v, ok := item.Params.Get("token")
	n, isInt := v.(int64)
	if !ok || !isInt || n <= 0 {
		return "", 0, errors.New(form + ", with a positive whole token")
	}
	return run, uint64(n), nil
}

// CheckRun says whether run may name a run: 1 to 128 visible ASCII characters.
func CheckRun(run string) error {
	if len(run) == 0 || len(run) > 128 || strings.ContainsFunc(run, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return errors.New("must name a run of 1 to 128 visible characters")
	}
	return nil
}
