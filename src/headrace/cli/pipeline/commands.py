"""`headrace pipeline`: declared pipelines on Spark."""

from __future__ import annotations

from headrace.cli.common.lazy import group

pipeline = group(
    "pipeline",
    "Pipelines on Spark, declared in YAML.",
    {
        "init": ("headrace.cli.pipeline.init:init_pipeline", "Write a pipeline file for a topic."),
        "check": ("headrace.cli.pipeline.check:check", "Check pipeline files before they run."),
        "preview": ("headrace.cli.pipeline.preview:preview_pipeline", "Show rows of any step; writes nothing."),
        "test": (
            "headrace.cli.pipeline.testing:test_pipelines",
            "Test pipelines with given rows; needs no broker.",
        ),
        "run": ("headrace.cli.pipeline.run:run_pipelines", "Run pipelines and show their progress."),
        "submit": ("headrace.cli.pipeline.submit:submit_pipelines", "Run pipelines through spark-submit."),
        "reset": ("headrace.cli.pipeline.reset:reset_pipeline", "Start a pipeline over, or replay from a point."),
        "list": ("headrace.cli.pipeline.listing:list_pipelines", "Show the pipelines on this machine."),
        "status": (
            "headrace.cli.pipeline.listing:show_status",
            "Show how far each query is, over all its runs.",
        ),
        "stop": ("headrace.cli.pipeline.listing:stop_pipelines", "Stop pipelines on this machine."),
    },
)
