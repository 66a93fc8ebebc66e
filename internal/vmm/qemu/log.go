package qemu

import (
	"log/slog"

	"ramet.dev/ramet/internal/sandbox"
)

// loggerWith logs for one instance.
type loggerWith struct {
	log      *slog.Logger
	instance sandbox.InstanceID
}

func (l loggerWith) warn(what string, err error) {
	l.log.Warn("machine: "+what, "instance", l.instance, "err", err)
}
