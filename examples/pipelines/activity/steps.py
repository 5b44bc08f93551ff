"""The step of the activity pipeline that is easier to say in Python than in SQL."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody gives it


def with_country(views: DataFrame, users: DataFrame) -> DataFrame:
    """Each view with what is known of its user, and the part of the site that it belongs to."""
    known = views.join(users.select("user_id", "name", "country"), "user_id", "left")
    section = F.coalesce(F.nullif(F.split_part("page", F.lit("/"), F.lit(2)), F.lit("")), F.lit("home"))
    return known.select(
        "id",
        "time",
        "user_id",
        "page",
        F.coalesce("name", F.lit("guest")).alias("name"),
        F.coalesce("country", F.lit("unknown")).alias("country"),
        section.alias("section"),
    )
