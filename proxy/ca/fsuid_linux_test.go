package ca

import "syscall"

// setfsuid changes whose rights the calling thread has on the file system.
func setfsuid(uid int) error { return syscall.Setfsuid(uid) }
