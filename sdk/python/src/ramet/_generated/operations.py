"""A function for each operation of api/openapi.yaml. Generated, see tools/generate.py.

Each describes a call, which the transport makes.
"""

from __future__ import annotations

from typing import Optional, Sequence

from .._calls import Call, Lines, Raw, ServerEvents, header_params, path_part, query_params
from . import models as m


def get_health() -> Call[str]:
    """Is the server alive."""
    return Call(
        "getHealth", "GET", "/v1/healthz", str,
    )

def get_info() -> Call[m.Info]:
    """What this server is."""
    return Call(
        "getInfo", "GET", "/v1/info", m.Info,
    )

def get_server_metrics() -> Call[str]:
    """Metrics of the server, for Prometheus."""
    return Call(
        "getServerMetrics", "GET", "/metrics", str,
    )

def get_usage() -> Call[m.Usage]:
    """What sandboxes and templates cost the host."""
    return Call(
        "getUsage", "GET", "/v1/usage", m.Usage,
    )

def get_backup() -> Raw:
    """Back up the records of the server."""
    return Raw(
        "getBackup", "GET", "/v1/backup", bytes,
    )

def get_capacity() -> Call[m.Capacity]:
    """What the host keeps ready, and how creates were served."""
    return Call(
        "getCapacity", "GET", "/v1/capacity", m.Capacity,
    )

def list_sandboxes(*, limit: Optional[int] = None, cursor: Optional[str] = None, status: Optional[str] = None, template: Optional[str] = None, metadata: Optional[Sequence[str]] = None) -> Call[m.SandboxList]:
    """List sandboxes, newest first."""
    return Call(
        "listSandboxes", "GET", "/v1/sandboxes", m.SandboxList,
        params=query_params({"limit": limit, "cursor": cursor, "status": status, "template": template, "metadata": metadata}),
    )

def create_sandbox(body: Optional[m.SandboxCreate] = None, *, idempotency_key: Optional[str] = None) -> Call[m.SandboxInfo]:
    """Create a sandbox."""
    return Call(
        "createSandbox", "POST", "/v1/sandboxes", m.SandboxInfo,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def get_sandbox(id: str) -> Call[m.SandboxInfo]:
    """Get a sandbox."""
    return Call(
        "getSandbox", "GET", f"/v1/sandboxes/{path_part(id)}", m.SandboxInfo,
    )

def update_sandbox(id: str, body: m.SandboxUpdate) -> Call[m.SandboxInfo]:
    """Change the settings of a sandbox."""
    return Call(
        "updateSandbox", "PATCH", f"/v1/sandboxes/{path_part(id)}", m.SandboxInfo,
        body=body,
    )

def delete_sandbox(id: str) -> Call[None]:
    """Delete a sandbox."""
    return Call(
        "deleteSandbox", "DELETE", f"/v1/sandboxes/{path_part(id)}", None,
    )

def set_egress(id: str, body: m.EgressSet) -> Call[m.SandboxInfo]:
    """Set what a sandbox may reach."""
    return Call(
        "setEgress", "PUT", f"/v1/sandboxes/{path_part(id)}/egress", m.SandboxInfo,
        body=body,
    )

def fork_sandbox(id: str, body: Optional[m.ForkRequest] = None, *, idempotency_key: Optional[str] = None) -> Call[m.Forked]:
    """Fork a running sandbox."""
    return Call(
        "forkSandbox", "POST", f"/v1/sandboxes/{path_part(id)}/fork", m.Forked,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def merge_sandbox(id: str, winner: str) -> Call[m.SandboxInfo]:
    """Make a sandbox what another one is."""
    return Call(
        "mergeSandbox", "POST", f"/v1/sandboxes/{path_part(id)}/merge_into/{path_part(winner)}", m.SandboxInfo,
    )

def hibernate_sandbox(id: str) -> Call[m.SandboxInfo]:
    """Hibernate a sandbox."""
    return Call(
        "hibernateSandbox", "POST", f"/v1/sandboxes/{path_part(id)}/hibernate", m.SandboxInfo,
    )

def wake_sandbox(id: str) -> Call[m.SandboxInfo]:
    """Wake a hibernated sandbox."""
    return Call(
        "wakeSandbox", "POST", f"/v1/sandboxes/{path_part(id)}/wake", m.SandboxInfo,
    )

def list_sandbox_checkpoints(id: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Call[m.CheckpointList]:
    """List the checkpoints of a sandbox, newest first."""
    return Call(
        "listSandboxCheckpoints", "GET", f"/v1/sandboxes/{path_part(id)}/checkpoints", m.CheckpointList,
        params=query_params({"limit": limit, "cursor": cursor}),
    )

def create_checkpoint(id: str, body: Optional[m.CheckpointCreate] = None, *, idempotency_key: Optional[str] = None) -> Call[m.Checkpoint]:
    """Make a checkpoint of a running sandbox."""
    return Call(
        "createCheckpoint", "POST", f"/v1/sandboxes/{path_part(id)}/checkpoints", m.Checkpoint,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def restore_sandbox(id: str, body: m.RestoreRequest) -> Call[m.SandboxInfo]:
    """Take a sandbox back to one of its checkpoints."""
    return Call(
        "restoreSandbox", "POST", f"/v1/sandboxes/{path_part(id)}/restore", m.SandboxInfo,
        body=body,
    )

def diff_sandboxes(id: str, body: m.DiffRequest) -> Call[m.Diff]:
    """Which files differ between two sandboxes."""
    return Call(
        "diffSandboxes", "POST", f"/v1/sandboxes/{path_part(id)}/diff", m.Diff,
        body=body,
    )

def list_checkpoints(*, limit: Optional[int] = None, cursor: Optional[str] = None) -> Call[m.CheckpointList]:
    """List checkpoints, newest first."""
    return Call(
        "listCheckpoints", "GET", "/v1/checkpoints", m.CheckpointList,
        params=query_params({"limit": limit, "cursor": cursor}),
    )

def get_checkpoint(id: str) -> Call[m.Checkpoint]:
    """Get a checkpoint."""
    return Call(
        "getCheckpoint", "GET", f"/v1/checkpoints/{path_part(id)}", m.Checkpoint,
    )

def delete_checkpoint(id: str) -> Call[None]:
    """Delete a checkpoint."""
    return Call(
        "deleteCheckpoint", "DELETE", f"/v1/checkpoints/{path_part(id)}", None,
    )

def list_spaces(*, limit: Optional[int] = None, cursor: Optional[str] = None) -> Call[m.SpaceList]:
    """List Spaces, newest first."""
    return Call(
        "listSpaces", "GET", "/v1/spaces", m.SpaceList,
        params=query_params({"limit": limit, "cursor": cursor}),
    )

def get_space(id: str) -> Call[m.Space]:
    """Get a Space."""
    return Call(
        "getSpace", "GET", f"/v1/spaces/{path_part(id)}", m.Space,
    )

def delete_space(id: str) -> Call[None]:
    """Delete a Space."""
    return Call(
        "deleteSpace", "DELETE", f"/v1/spaces/{path_part(id)}", None,
    )

def resume_space(id: str, body: Optional[m.SpaceResume] = None, *, idempotency_key: Optional[str] = None) -> Call[m.SandboxInfo]:
    """Resume a Space."""
    return Call(
        "resumeSpace", "POST", f"/v1/spaces/{path_part(id)}/resume", m.SandboxInfo,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def get_lineage(*, sandbox: Optional[str] = None) -> Call[m.Lineage]:
    """Which sandboxes and checkpoints come of which."""
    return Call(
        "getLineage", "GET", "/v1/lineage", m.Lineage,
        params=query_params({"sandbox": sandbox}),
    )

def collect_garbage(body: Optional[m.GCRequest] = None) -> Call[m.GCReport]:
    """Remove what no record owns."""
    return Call(
        "collectGarbage", "POST", "/v1/gc", m.GCReport,
        body=body,
    )

def exec(id: str, body: m.ExecRequest) -> Lines[m.RunEvent]:
    """Run code."""
    return Lines(
        "exec", "POST", f"/v1/sandboxes/{path_part(id)}/exec", m.RunEvent,
        body=body,
    )

def list_processes(id: str) -> Call[m.ProcessList]:
    """List runs and programs."""
    return Call(
        "listProcesses", "GET", f"/v1/sandboxes/{path_part(id)}/processes", m.ProcessList,
    )

def start_process(id: str, body: m.ProcessStart, *, idempotency_key: Optional[str] = None) -> Lines[m.RunEvent]:
    """Start a program."""
    return Lines(
        "startProcess", "POST", f"/v1/sandboxes/{path_part(id)}/processes", m.RunEvent,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def stream_process(id: str, process: str, *, from_seq: Optional[int] = None, latest: Optional[bool] = None) -> Lines[m.RunEvent]:
    """Follow a process again."""
    return Lines(
        "streamProcess", "GET", f"/v1/sandboxes/{path_part(id)}/processes/{path_part(process)}/stream", m.RunEvent,
        params=query_params({"from_seq": from_seq, "latest": latest}),
    )

def write_stdin(id: str, process: str, *, eof: Optional[bool] = None) -> Call[m.Written]:
    """Write to a program's standard input."""
    return Call(
        "writeStdin", "POST", f"/v1/sandboxes/{path_part(id)}/processes/{path_part(process)}/stdin", m.Written,
        params=query_params({"eof": eof}),
        content_type="application/octet-stream",
    )

def signal_process(id: str, process: str, body: m.SignalRequest) -> Call[None]:
    """Send a signal."""
    return Call(
        "signalProcess", "POST", f"/v1/sandboxes/{path_part(id)}/processes/{path_part(process)}/signal", None,
        body=body,
    )

def resize_process(id: str, process: str, body: m.PtySize) -> Call[None]:
    """Set the size of a process's terminal."""
    return Call(
        "resizeProcess", "POST", f"/v1/sandboxes/{path_part(id)}/processes/{path_part(process)}/resize", None,
        body=body,
    )

def list_contexts(id: str) -> Call[m.ContextList]:
    """List interpreters."""
    return Call(
        "listContexts", "GET", f"/v1/sandboxes/{path_part(id)}/contexts", m.ContextList,
    )

def create_context(id: str, body: m.ContextCreate) -> Call[m.Context]:
    """Start an interpreter."""
    return Call(
        "createContext", "POST", f"/v1/sandboxes/{path_part(id)}/contexts", m.Context,
        body=body,
    )

def delete_context(id: str, context: str) -> Call[None]:
    """End an interpreter."""
    return Call(
        "deleteContext", "DELETE", f"/v1/sandboxes/{path_part(id)}/contexts/{path_part(context)}", None,
    )

def restart_context(id: str, context: str) -> Call[m.Context]:
    """Replace an interpreter by a new one."""
    return Call(
        "restartContext", "POST", f"/v1/sandboxes/{path_part(id)}/contexts/{path_part(context)}/restart", m.Context,
    )

def read_file(id: str, *, path: str, user: Optional[str] = None) -> Raw:
    """Read a file."""
    return Raw(
        "readFile", "GET", f"/v1/sandboxes/{path_part(id)}/files", bytes,
        params=query_params({"path": path, "user": user}),
    )

def write_file(id: str, *, path: str, user: Optional[str] = None, mode: Optional[str] = None, parents: Optional[bool] = None, attribute: Optional[Sequence[str]] = None) -> Call[m.FileInfo]:
    """Write a file."""
    return Call(
        "writeFile", "PUT", f"/v1/sandboxes/{path_part(id)}/files", m.FileInfo,
        params=query_params({"path": path, "user": user, "mode": mode, "parents": parents, "attribute": attribute}),
        content_type="application/octet-stream",
    )

def remove_file(id: str, *, path: str, user: Optional[str] = None, recursive: Optional[bool] = None) -> Call[None]:
    """Remove a file or directory."""
    return Call(
        "removeFile", "DELETE", f"/v1/sandboxes/{path_part(id)}/files", None,
        params=query_params({"path": path, "user": user, "recursive": recursive}),
    )

def list_files(id: str, *, path: str, user: Optional[str] = None, depth: Optional[int] = None) -> Call[m.FileList]:
    """List a directory."""
    return Call(
        "listFiles", "GET", f"/v1/sandboxes/{path_part(id)}/files/list", m.FileList,
        params=query_params({"path": path, "user": user, "depth": depth}),
    )

def stat_file(id: str, *, path: str, user: Optional[str] = None, follow: Optional[bool] = None) -> Call[m.FileInfo]:
    """What a path is."""
    return Call(
        "statFile", "GET", f"/v1/sandboxes/{path_part(id)}/files/stat", m.FileInfo,
        params=query_params({"path": path, "user": user, "follow": follow}),
    )

def watch_files(id: str, *, path: str, user: Optional[str] = None, recursive: Optional[bool] = None, info: Optional[bool] = None) -> Lines[m.FileEvent]:
    """Follow what changes in a directory."""
    return Lines(
        "watchFiles", "GET", f"/v1/sandboxes/{path_part(id)}/files/watch", m.FileEvent,
        params=query_params({"path": path, "user": user, "recursive": recursive, "info": info}),
    )

def make_directory(id: str, body: m.MakeDirectory) -> Call[m.FileInfo]:
    """Make a directory."""
    return Call(
        "makeDirectory", "POST", f"/v1/sandboxes/{path_part(id)}/files/mkdir", m.FileInfo,
        body=body,
    )

def move_file(id: str, body: m.MoveFile) -> Call[m.FileInfo]:
    """Move or rename."""
    return Call(
        "moveFile", "POST", f"/v1/sandboxes/{path_part(id)}/files/move", m.FileInfo,
        body=body,
    )

def set_file_attributes(id: str, body: m.FileAttributes) -> Call[m.FileInfo]:
    """Change mode, owner or group."""
    return Call(
        "setFileAttributes", "POST", f"/v1/sandboxes/{path_part(id)}/files/attributes", m.FileInfo,
        body=body,
    )

def read_archive(id: str, *, path: str, user: Optional[str] = None) -> Raw:
    """Read a file or directory as a tar."""
    return Raw(
        "readArchive", "GET", f"/v1/sandboxes/{path_part(id)}/archive", bytes,
        params=query_params({"path": path, "user": user}),
    )

def write_archive(id: str, *, path: str, user: Optional[str] = None) -> Call[m.Extracted]:
    """Unpack a tar into a directory."""
    return Call(
        "writeArchive", "PUT", f"/v1/sandboxes/{path_part(id)}/archive", m.Extracted,
        params=query_params({"path": path, "user": user}),
        content_type="application/x-tar",
    )

def list_ports(id: str) -> Call[m.PortList]:
    """TCP ports that something listens on."""
    return Call(
        "listPorts", "GET", f"/v1/sandboxes/{path_part(id)}/ports", m.PortList,
    )

def get_metrics(id: str) -> Call[m.Metrics]:
    """What a sandbox uses."""
    return Call(
        "getMetrics", "GET", f"/v1/sandboxes/{path_part(id)}/metrics", m.Metrics,
    )

def get_console(id: str) -> Call[str]:
    """The last lines of the guest's serial console."""
    return Call(
        "getConsole", "GET", f"/v1/sandboxes/{path_part(id)}/console", str,
    )

def stream_events(*, since: Optional[str] = None, sandbox: Optional[str] = None, follow: Optional[bool] = None, last_event_id: Optional[str] = None) -> ServerEvents[m.SandboxEvent]:
    """What happens to sandboxes, as server-sent events."""
    return ServerEvents(
        "streamEvents", "GET", "/v1/events", m.SandboxEvent,
        params=query_params({"since": since, "sandbox": sandbox, "follow": follow}),
        headers=header_params({"Last-Event-ID": last_event_id}),
    )

def list_templates() -> Call[m.TemplateList]:
    """List templates."""
    return Call(
        "listTemplates", "GET", "/v1/templates", m.TemplateList,
    )

def build_template(body: m.TemplateBuild) -> Lines[m.BuildEvent]:
    """Build a template."""
    return Lines(
        "buildTemplate", "POST", "/v1/templates", m.BuildEvent,
        body=body,
    )

def delete_template(name: str) -> Call[None]:
    """Delete a template."""
    return Call(
        "deleteTemplate", "DELETE", f"/v1/templates/{path_part(name)}", None,
    )

def list_keys(*, project: Optional[str] = None) -> Call[m.KeyList]:
    """List API keys."""
    return Call(
        "listKeys", "GET", "/v1/keys", m.KeyList,
        params=query_params({"project": project}),
    )

def create_key(body: Optional[m.KeyCreate] = None, *, idempotency_key: Optional[str] = None) -> Call[m.KeyCreated]:
    """Create an API key."""
    return Call(
        "createKey", "POST", "/v1/keys", m.KeyCreated,
        headers=header_params({"Idempotency-Key": idempotency_key}),
        body=body,
    )

def delete_key(id: str) -> Call[None]:
    """Revoke an API key."""
    return Call(
        "deleteKey", "DELETE", f"/v1/keys/{path_part(id)}", None,
    )

def list_projects() -> Call[m.ProjectList]:
    """List projects with their limits and what they use."""
    return Call(
        "listProjects", "GET", "/v1/projects", m.ProjectList,
    )

def get_project(name: str) -> Call[m.Project]:
    """Get a project."""
    return Call(
        "getProject", "GET", f"/v1/projects/{path_part(name)}", m.Project,
    )

def set_project(name: str, body: Optional[m.ProjectSet] = None) -> Call[m.Project]:
    """Make a project or change its quota and retention."""
    return Call(
        "setProject", "PUT", f"/v1/projects/{path_part(name)}", m.Project,
        body=body,
    )
