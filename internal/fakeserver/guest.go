package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"connectrpc.com/connect"

	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/exec"
	"ramet.dev/ramet/internal/guest/reap"
)

// execIn returns what runs the programs of a fake guest: the agent's own code, with the
// home directory of root in the guest's folder.
func execIn(reaper *reap.Reaper, log *slog.Logger) func(root string, env map[string]string) (string, http.Handler, func(), error) {
	return func(root string, env map[string]string) (string, http.Handler, func(), error) {
		etc := filepath.Join(root, "etc")
		if err := os.MkdirAll(etc, 0o755); err != nil {
			return "", nil, nil, err
		}
		passwd, group := filepath.Join(etc, "passwd"), filepath.Join(etc, "group")
		home := filepath.Join(root, "root")
		if err := os.WriteFile(passwd, fmt.Appendf(nil, "root:x:%d:%d:root:%s:/bin/bash\n", os.Getuid(), os.Getgid(), home), 0o644); err != nil {
			return "", nil, nil, err
		}
		if err := os.WriteFile(group, fmt.Appendf(nil, "root:x:%d:\n", os.Getgid()), 0o644); err != nil {
			return "", nil, nil, err
		}
		svc, err := exec.New(exec.Config{
			Reaper: reaper, Logger: log, SpoolDir: filepath.Join(root, "spool"), Users: exec.Users{Passwd: passwd, Group: group},
		})
		if err != nil {
			return "", nil, nil, err
		}
		if err := svc.Renew(exec.Renewal{Env: env, Later: true}); err != nil {
			svc.Close()
			return "", nil, nil, err
		}
		path, handler := agentv1connect.NewExecHandler(svc, connect.WithCompression("gzip", nil, nil))
		return path, exec.Batch(handler), svc.Close, nil
	}
}
