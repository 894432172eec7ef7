"""PySpark pipeline over the journal: from segment files to verified Parquet tables, published policy and a report.

``tables`` declares the datasets, ``lake`` stores their files, and ``transforms`` are pure DataFrame functions. ``jobs``
are the steps, ``run`` executes them in order, and ``report`` renders the page. Only ``session`` starts Spark, and only
``java`` searches for a Java. Importing this package does neither.
"""
