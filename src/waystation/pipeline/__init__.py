"""PySpark over the journal: from the node's segments to verified tables and a report.

``tables`` declares every dataset, ``lake`` keeps which files of it count, ``transforms`` are pure functions from
DataFrame to DataFrame, ``jobs`` read, transform and publish, ``run`` puts them in order, ``report`` draws the page.
Only ``session`` opens Spark, and only ``java`` looks for a Java. Importing this package imports neither.
"""
