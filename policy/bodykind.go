package policy

import (
	"fmt"
	"slices"
)

// BodyKind is a way to compare bodies.
type BodyKind uint8

const (
	// BodyRaw compares bytes. The zero value.
	BodyRaw BodyKind = iota
	// BodyJSON compares JSON texts by their value, whatever the Content-Type says.
	BodyJSON
	// BodyForm compares the fields of application/x-www-form-urlencoded. A request
	// whose Content-Type says something else is compared byte by byte.
	BodyForm
	// BodyMultipart compares the parts of multipart/form-data.
	BodyMultipart
	// BodyAuto takes one of these by the Content-Type.
	BodyAuto
)

var bodyNames = [...]string{"raw", "json", "form", "multipart", "auto"}

// String gives the name that ParseBodyKind reads.
func (k BodyKind) String() string {
	if int(k) < len(bodyNames) {
		return bodyNames[k]
	}
	return fmt.Sprintf("body(%d)", uint8(k))
}

// BodyKinds gives the names of all ways to compare bodies.
func BodyKinds() []string { return slices.Clone(bodyNames[:]) }

// ParseBodyKind reads the name of a way to compare bodies.
func ParseBodyKind(name string) (BodyKind, bool) {
	i := slices.Index(bodyNames[:], name)
	return BodyKind(max(i, 0)), i >= 0
}
