//go:build integration

package app

import "ramet.dev/ramet/internal/control"

// Control returns the use cases that the app serves.
func (a *App) Control() *control.Control { return a.control }
