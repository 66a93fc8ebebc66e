package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/doctor"
)

func (p *program) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run a server",
		Long: `Check this machine: the programs that are needed and their versions, rights,
KVM and gVisor, what can isolate sandboxes here and which of it the driver auto
chooses, cgroups, memory and disk, proxies and certificates, the package mirror,
and the server itself. Each line is ok, warn (works, but see what it says) or
FAIL, with what to do. Nothing is changed.

KVM is not judged by /dev/kvm alone: the first start of a server boots a machine
under it, and doctor shows what came of that.

The exit code is 1 when any check fails; warnings do not count.`,
		Example: `  sudo ramet doctor
  ramet doctor --json | jq '.checks[] | select(.status != "ok")'`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return p.doctor(ctx, asJSON)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) doctor(ctx context.Context, asJSON bool) error {
	r, err := p.settings()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	host := doctor.Host{
		Program: self,
		Run:     doctor.RunProgram, LookPath: exec.LookPath, Getenv: os.Getenv,
		EUID: os.Geteuid(), Arch: runtime.GOARCH, HTTP: &http.Client{Timeout: 5 * time.Second},
	}
	report := doctor.Run(ctx, host, r.Server())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if asJSON {
		err = printJSON(p.Out, report)
	} else {
		err = p.printReport(report)
	}
	if err == nil && !report.OK {
		return exitStatus(exitFailed)
	}
	return err
}

func (p *program) printReport(report doctor.Report) error {
	width, warnings, failures := 0, 0, 0
	for _, c := range report.Checks {
		width = max(width, len(c.Name))
	}
	for _, c := range report.Checks {
		mark, colour := "ok  ", "32"
		switch c.Status {
		case doctor.Warn:
			mark, colour = "warn", "33"
			warnings++
		case doctor.Fail:
			mark, colour = "FAIL", "31"
			failures++
		}
		if colours(p.Out) {
			mark = "\x1b[" + colour + "m" + mark + "\x1b[0m"
		}
		name := strings.ReplaceAll(c.Name, "_", "-")
		if _, err := fmt.Fprintf(p.Out, "%s  %-*s  %s\n", mark, width, name, clean(c.Summary)); err != nil {
			return err
		}
		if c.Fix != "" {
			fmt.Fprintf(p.Out, "      %-*s  > %s\n", width, "", clean(c.Fix))
		}
	}
	switch {
	case failures > 0:
		fmt.Fprintf(p.Out, "\n%s; a server cannot run here until that is mended.\n", count(failures, "check failed", "checks failed"))
	case warnings > 0:
		fmt.Fprintf(p.Out, "\nA server can run here, with %s.\n", count(warnings, "warning", "warnings"))
	default:
		fmt.Fprintln(p.Out, "\nA server can run here.")
	}
	return nil
}
