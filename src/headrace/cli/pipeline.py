"""`headrace pipeline`: declared pipelines on Spark."""

from __future__ import annotations

from headrace.cli.lazy import group

pipeline = group(
    "pipeline",
    "Pipelines on Spark, declared in YAML: check them, run them, see and stop what runs.",
    {
        "check": ("headrace.cli.pipeline_check:check", "Check pipeline files before they run."),
        "run": ("headrace.cli.pipeline_run:run_pipelines", "Run pipelines and show their progress."),
        "submit": ("headrace.cli.pipeline_submit:submit_pipelines", "Run pipelines through spark-submit."),
        "list": ("headrace.cli.pipeline_list:list_pipelines", "Show the pipelines of this machine."),
        "stop": ("headrace.cli.pipeline_list:stop_pipelines", "Stop pipelines that run on this machine."),
    },
)
