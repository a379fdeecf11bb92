//go:build programs

// Package programs names what is built from this module, so that `go mod tidy` keeps what it needs.
package programs

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
