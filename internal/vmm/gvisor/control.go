package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// Calls of a sentry's control socket. The Ramet ones are additions of cmd/ramet-runsc.
const (
	callNetwork    = "containerManager.SetNetworkArgs"
	callStart      = "containerManager.StartRoot"
	callRestore    = "containerManager.Restore"
	callPause      = "containerManager.Pause"
	callResume     = "containerManager.Resume"
	callCheckpoint = "containerManager.Checkpoint"
	callSaveDisk   = "containerManager.FSSave"
	callResize     = "containerManager.RametResize"
	callStatus     = "containerManager.RametGetStatus"
)

// restoreArgs are gVisor's boot.RestoreOpts.
type restoreArgs struct {
	urpc.FilePayload // as in checkpointArgs
	HavePagesFile    bool
	Background       bool // the guest runs while its pages are read
}

// checkpointArgs are gVisor's control.SaveOpts.
type checkpointArgs struct {
	urpc.FilePayload                   // state, pages' metadata, pages
	Metadata         map[string]string `json:"metadata"`
	SkipZeros        bool              `json:"app_mf_exclude_committed_zero_pages"`
	HavePages        bool              `json:"have_pages_file"`
	Resume           bool
}

// saveDiskArgs are gVisor's boot.FSSaveArgs.
type saveDiskArgs struct {
	urpc.FilePayload // manifest, tar, pages' metadata, pages
}

type resizeArgs struct {
	MemoryBytes uint64 `json:"memory_bytes"`
	Cores       uint   `json:"cores"`
	DiskBytes   uint64 `json:"disk_bytes"`
}

type status struct {
	Paused bool `json:"paused"`
}

// call makes one call to the sentry. When ctx ends the call is given up; the sentry
// may carry it out all the same.
func (m *Machine) call(ctx context.Context, method string, arg, result any) error {
	if err := m.Err(); err != nil {
		return err
	}
	err := callSentry(ctx, filepath.Join(m.dir, stateDir, "runsc-"+string(m.id)+".sock"), method, arg, result)
	if err == nil {
		return nil
	}
	return m.explain(ctx, fmt.Errorf("ask the sandbox for %s: %w", method, err))
}

// errGivenUp is a call that ended with its context.
var errGivenUp = errors.New("the call was given up")

func callSentry(ctx context.Context, path, method string, arg, result any) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// A socket's name is at most 107 bytes, and data directories can be deep.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	sock, err := unet.Connect(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), false)
	if cerr := dir.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
			return errors.Join(err, errNoSentry)
		}
		return err
	}
	client := urpc.NewClient(sock)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = sock.Shutdown() // wakes the call up; it may have ended already
	})
	err = client.Call(method, arg, result)
	if !stop() {
		<-interrupted
		if err != nil {
			err = errors.Join(errGivenUp, context.Cause(ctx))
		}
	}
	return errors.Join(err, client.Close())
}

// errNoSentry is a control socket that nobody listens on.
var errNoSentry = errors.New("nobody answers on the sandbox's control socket")
