package cli

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

// shapeFlags say what a new sandbox is like. 'create' and 'run' share them.
type shapeFlags struct {
	memoryMB int
	vcpus    int
	diskMB   int
	noEgress bool
	rules    ruleFlags
	metadata []string
	// isolation is what the sandbox must have.
	isolation string
}

// isolations are the levels, for completion.
func isolations() []string {
	var out []string
	for _, level := range sandbox.Isolations() {
		out = append(out, string(level))
	}
	return out
}

func (f *shapeFlags) add(p *program, cmd *cobra.Command) {
	addSettingFlags(cmd.Flags(), "template")
	cmd.Flags().Lookup("template").Usage = "template to make it from [RAMET_TEMPLATE]"
	cmd.RegisterFlagCompletionFunc("template", p.completeTemplates)
	cmd.Flags().IntVar(&f.memoryMB, "memory", 0, "memory in MB, 512 to 16384 in steps of 128 (default 1024)")
	cmd.Flags().IntVar(&f.vcpus, "vcpus", 0, "virtual processors: 1, 2, 4 or 8 (default 2)")
	cmd.Flags().IntVar(&f.diskMB, "disk", 0, "disk in MB, 4096 to 65536; only what is written takes space (default 4096)")
	cmd.Flags().BoolVar(&f.noEgress, "no-egress", false, "no network out of the sandbox")
	f.rules.add(cmd, "egress-")
	cmd.Flags().StringArrayVar(&f.metadata, "metadata", nil, "note K=V on the sandbox, to find it by (repeatable)")
	cmd.Flags().StringVar(&f.isolation, "isolation", "", "what must isolate it: kvm, gvisor or emulated; refused where the server gives another (default: no matter what)")
	for name, arg := range map[string]string{"memory": "MB", "vcpus": "N", "disk": "MB", "metadata": "K=V", "isolation": "LEVEL"} {
		nameValue(cmd.Flags(), name, arg)
		cmd.Flags().Lookup(name).DefValue = ""
	}
	cmd.RegisterFlagCompletionFunc("vcpus", cobra.FixedCompletions([]string{"1", "2", "4", "8"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(isolations(), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"memory", "disk", "metadata"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// request makes the body of a create. The server checks the numbers; it knows
// what its host has.
func (f *shapeFlags) request(p *program, cmd *cobra.Command, env map[string]string) (v1.SandboxCreate, error) {
	var req v1.SandboxCreate
	metadata, err := parsePairs("metadata", f.metadata)
	if err != nil {
		return req, err
	}
	r, err := p.settings()
	if err != nil {
		return req, err
	}
	for name, v := range map[string]struct {
		value int
		field **int
	}{"memory": {f.memoryMB, &req.MemoryMb}, "vcpus": {f.vcpus, &req.Vcpus}, "disk": {f.diskMB, &req.DiskMb}} {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if v.value <= 0 {
			return req, usageErrorf("--%s must be a positive number", name)
		}
		*v.field = &v.value
	}
	req.Template = ptr(r.Server().Template)
	if f.noEgress {
		egress := false
		req.Egress = &egress
	}
	if f.isolation != "" {
		req.Isolation = &f.isolation
	}
	req.EgressPolicy = f.rules.policy(cmd)
	req.Env, req.Metadata = mapPtr(env), mapPtr(metadata)
	return req, nil
}

func (p *program) createCommand() *cobra.Command {
	var shape shapeFlags
	var env envFlags
	var timers timerFlags
	var ends deadlineFlags
	var checkpoint string
	var persistent, keepSeed, asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a sandbox and print its id",
		Long: `Create a sandbox and print its id on standard output, and nothing else there.
It is a machine of its own, started from a template or a checkpoint, and stays
until 'ramet rm' or until its maximum lifetime is over. When nobody calls it for
its idle timeout (5 minutes if nothing else is set) it hibernates, and wakes at
the next call; with --persistent it becomes a Space instead, see 'ramet space'.

A sandbox that starts from a checkpoint has its memory, disk, shape and settings;
other flags win over its settings.

With --isolation the server refuses it unless that is what its machines have;
what they have says 'ramet status', and the sandbox itself.

The environment that is given here is that of everything that will run in it.`,
		Example: `  ramet create
  id=$(ramet create --memory 2048 --vcpus 4)
  ramet create --no-egress --metadata job=42 --env TOKEN
  ramet create --egress-allow pypi.org --egress-allow '*.pythonhosted.org'
  ramet create --checkpoint 3f2a/before-deploy
  ramet create --persistent --idle-timeout 30m
  ramet create --ends-in 15m
  ramet create --isolation kvm
  ramet create --json | jq .timings_ms`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			vars, err := env.values()
			if err != nil {
				return err
			}
			req, err := shape.request(p, cmd, vars)
			if err != nil {
				return err
			}
			if req.IdleTimeoutS, req.MaxLifetimeS, err = timers.values(cmd); err != nil {
				return err
			}
			if req.EndsInS, req.AtEnd, err = ends.values(cmd); err != nil {
				return err
			}
			req.Persistent = ptr(persistent)
			c, err := p.connect()
			if err != nil {
				return err
			}
			if err := p.ofCheckpoint(ctx, cmd, c, checkpoint, keepSeed, &req); err != nil {
				return err
			}
			start := time.Now()
			sb, err := p.create(ctx, c, req)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.Out, sb)
			}
			if isTerminal(p.Err) {
				fmt.Fprintf(p.Err, "running after %s%s\n", milliseconds(float64(time.Since(start).Microseconds())/1000), timings(sb.TimingsMs))
			}
			_, err = fmt.Fprintln(p.Out, sb.Id)
			return err
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	shape.add(p, cmd)
	env.add(cmd, "of the sandbox")
	timers.add(cmd)
	ends.add(cmd)
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "start from this checkpoint: its id, or ID/NAME")
	cmd.Flags().BoolVar(&keepSeed, "keep-seed", false, "with --checkpoint: leave the state of Python's and numpy's random generators")
	cmd.Flags().BoolVar(&persistent, "persistent", false, "when its idle timeout is over it becomes a Space")
	nameValue(cmd.Flags(), "checkpoint", "CHECKPOINT")
	cmd.RegisterFlagCompletionFunc("checkpoint", func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return p.checkpointCompletions(cmd, "", toComplete), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandbox as JSON instead of its id")
	return cmd
}

// ofCheckpoint makes a create one that starts from a checkpoint, if it is named.
func (p *program) ofCheckpoint(ctx context.Context, cmd *cobra.Command, c *client.Client, name string, keepSeed bool, req *v1.SandboxCreate) error {
	if name == "" {
		if keepSeed {
			return usageErrorf("--keep-seed is for --checkpoint")
		}
		return nil
	}
	for _, flag := range []string{"template", "memory", "vcpus", "disk"} {
		if cmd.Flags().Changed(flag) {
			return usageErrorf("--%s cannot be given with --checkpoint: it is the checkpoint's", flag)
		}
	}
	id, err := resolveCheckpoint(ctx, c, "", name)
	if err != nil {
		return err
	}
	req.Template, req.Checkpoint = nil, &id
	if keepSeed {
		reseed := false
		req.Reseed = &reseed
	}
	return nil
}

// create creates a sandbox, and shows on a terminal that this is what takes the time.
func (p *program) create(ctx context.Context, c *client.Client, req v1.SandboxCreate) (*v1.Sandbox, error) {
	defer p.showWaiting("starting a sandbox")()
	sb, err := c.Create(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("create a sandbox: %w", err)
	}
	return sb, nil
}

// timings lists the steps of a call, the longest first.
func timings(ms *map[string]float64) string {
	if ms == nil {
		return ""
	}
	steps := make([]string, 0, len(*ms))
	for name := range *ms {
		if name != "total" {
			steps = append(steps, name)
		}
	}
	sort.Slice(steps, func(i, j int) bool { return (*ms)[steps[i]] > (*ms)[steps[j]] })
	for i, name := range steps {
		steps[i] = clean(name) + " " + milliseconds((*ms)[name])
	}
	if len(steps) == 0 {
		return ""
	}
	return " (" + strings.Join(steps[:min(4, len(steps))], ", ") + ")"
}
