"""`headrace pipeline`: declared pipelines on Spark."""

from __future__ import annotations

from headrace.cli.common.lazy import group

pipeline = group(
    "pipeline",
    "Pipelines on Spark, declared in YAML.",
    {
        "check": ("headrace.cli.pipeline.check:check", "Check pipeline files before they run."),
        "run": ("headrace.cli.pipeline.run:run_pipelines", "Run pipelines and show their progress."),
        "submit": ("headrace.cli.pipeline.submit:submit_pipelines", "Run pipelines through spark-submit."),
        "list": ("headrace.cli.pipeline.listing:list_pipelines", "Show the pipelines on this machine."),
        "stop": ("headrace.cli.pipeline.listing:stop_pipelines", "Stop pipelines on this machine."),
    },
)
