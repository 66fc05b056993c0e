//go:build !linux

package ca

import "errors"

func setfsuid(int) error { return errors.New("run this test as another user than root") }
