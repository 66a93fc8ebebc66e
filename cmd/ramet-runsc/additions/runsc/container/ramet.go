package container

// This file is Ramet's and not part of gVisor.

import (
	"errors"
	"os"

	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
)

// rametGoferless is how createGoferProcess ends when a container needs no gofer. gVisor's
// own returns no file for the root filesystem's writable layer there, and the
// sandbox then ends in a panic.
func (c *Container) rametGoferless(conf *config.Config, hints *boot.PodMountHints, ioFiles []*os.File) ([]*os.File, []*os.File, *os.File, *os.File, error) {
	if !c.GoferMountConfs[0].IsFilestorePresent() {
		return ioFiles, nil, nil, nil, nil
	}
	store, err := c.createGoferFilestore("/", conf.GetOverlay2(), c.GoferMountConfs[0], c.Spec.Root.Path, hints)
	if err != nil {
		for _, f := range ioFiles {
			err = errors.Join(err, f.Close())
		}
		return nil, nil, nil, nil, err
	}
	pgalloc.IMAWorkAroundForMemFile(store.Fd())
	return ioFiles, []*os.File{store}, nil, nil, nil
}
