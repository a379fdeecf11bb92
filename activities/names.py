"""The names that are for ever: activities, workflows, signals, queries and task queues.

Histories and callers outside refer to them, so a name never changes its meaning: a changed payload gets a name of
its own (`_v2`).
"""

from typing import Final

RUN_COMMAND: Final = "emberpool.run_command"
WRITE_FILE: Final = "emberpool.write_file"
READ_FILE: Final = "emberpool.read_file"
UPLOAD: Final = "emberpool.upload"
DOWNLOAD: Final = "emberpool.download"
DOWNLOAD_OUTPUT: Final = "emberpool.download_output"
LIST_FILES: Final = "emberpool.list_files"
REMOVE_FILE: Final = "emberpool.remove_file"
BLOB_PLACE: Final = "emberpool.blob_place"
BIND_JOB: Final = "emberpool.bind_job"
PREPARE_JOB: Final = "emberpool.prepare_job"
OPEN_SANDBOX: Final = "emberpool.open_sandbox"
ADOPT_SANDBOX: Final = "emberpool.adopt_sandbox"
DETACH_SANDBOX: Final = "emberpool.detach_sandbox"
RECYCLE_POD: Final = "emberpool.recycle_pod"
WAIT_FOR_POD: Final = "emberpool.wait_for_pod"
PROVISION_POD: Final = "emberpool.provision_pod"
PROMOTE_STANDBY: Final = "emberpool.promote_standby"
SWAP_IMAGE: Final = "emberpool.swap_image"
PLAN_POOL: Final = "emberpool.plan_pool"
TEND_POOL: Final = "emberpool.tend_pool"
SET_TARGETS: Final = "emberpool.set_targets"
PROVISION_WARM: Final = "emberpool.provision_warm"
RETIRE_PODS: Final = "emberpool.retire_pods"
LOAD_TASKS: Final = "emberpool.load_tasks"
RECORD_RESULT: Final = "emberpool.record_result"
RUN_TOOL: Final = "emberpool.run_tool"
WATCH_COMMAND: Final = "emberpool.watch_command"
START_PROCESS: Final = "emberpool.start_process"
LIST_PROCESSES: Final = "emberpool.list_processes"
STEER_PROCESS: Final = "emberpool.steer_process"
WAIT_FOR_PROCESS: Final = "emberpool.wait_for_process"
READ_OUTPUT: Final = "emberpool.read_output"
FOLLOW_OUTPUT: Final = "emberpool.follow_output"
OPEN_SHELL: Final = "emberpool.open_shell"
RUN_IN_SHELL: Final = "emberpool.run_in_shell"
SAVE_CHECKPOINT: Final = "emberpool.save_checkpoint"
RESTORE_CHECKPOINT: Final = "emberpool.restore_checkpoint"
REQUEST_PORT: Final = "emberpool.request_port"
LOOK_AT_POOL: Final = "emberpool.look_at_pool"

SANDBOX_BASH: Final = "sandbox_bash"
SANDBOX_READ: Final = "sandbox_read"
SANDBOX_WRITE: Final = "sandbox_write"

TOOL_CALL: Final = "EmberpoolToolCall"
ROLLOUT: Final = "EmberpoolRollout"
ROLLOUT_BATCH: Final = "EmberpoolRolloutBatch"
ROLLOUT_SHARD: Final = "EmberpoolRolloutShard"
GANG_JOB: Final = "EmberpoolGangJob"
POOL_MANAGER: Final = "EmberpoolPoolManager"
SANDBOX_SESSION: Final = "EmberpoolSandboxSession"

SET_BUDGET: Final = "set_budget"
SET_QUEUE_SHARE: Final = "set_queue_share"
APPLY_PROFILE: Final = "apply_profile"
DRAIN: Final = "drain"
POOL_STATUS: Final = "status"
BATCH_PROGRESS: Final = "progress"
SESSION_OPEN: Final = "open"
SESSION_START: Final = "start"
SESSION_WAIT: Final = "wait"
SESSION_KILL: Final = "kill"
SESSION_WRITE: Final = "write_file"
SESSION_READ: Final = "read_file"
SESSION_CLOSE: Final = "close"
SESSION_WHERE: Final = "where"
SESSION_USE: Final = "use"

SANDBOX_HEADER: Final = "emberpool-sandbox"
"""The header that tells an activity which sandbox is current; it names one and holds no secret."""

SEARCH_CALLER: Final = "EmberpoolCaller"
SEARCH_PROFILE: Final = "EmberpoolProfile"
SEARCH_IMAGE: Final = "EmberpoolImage"
SEARCH_SOURCE: Final = "EmberpoolSource"
SEARCH_OUTCOME: Final = "EmberpoolOutcome"
SEARCH_ATTRIBUTES: Final = (SEARCH_CALLER, SEARCH_PROFILE, SEARCH_IMAGE, SEARCH_SOURCE, SEARCH_OUTCOME)
"""All of type Keyword."""

DEFAULT_TASK_QUEUE: Final = "emberpool"


def control_queue(task_queue: str) -> str:
    """Queue of short work (files, release, recycle, plan, tend): long commands never fill its slots."""
    return f"{task_queue}-control"


def wait_queue(task_queue: str) -> str:
    """Queue of the waits in line, which only sleep."""
    return f"{task_queue}-wait"


def tools_queue(task_queue: str) -> str:
    """Queue of one-shot calls."""
    return f"{task_queue}-tools"


def pool_manager_id(deployment: str, profile: str) -> str:
    """Workflow id of the one manager of a pool."""
    return f"emberpool-pool/{deployment}/{profile}"
