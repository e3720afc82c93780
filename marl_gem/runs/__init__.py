"""A run on disk: what training, evaluation, recording, export and the viewer share.

    files          a file or folder that is written completely or not at all
    checksum       the last field of a JSON object, which says whether it was changed
    lock           one process at a time works on a run
    journal        a JSONL file that only grows, durable line by line
    outline        the lines of a file of episodes, read completely or in outline
    folder         the names of a run's files, its configuration, a name for a new run
    configuration  flatten a configuration, and compare two of them
    entries        a line of a file of episodes: where it lies, and a summary of its episode
    index          the entries of a file of episodes
    stored_index   the same in a file, so that a large run is opened at once
    parts          an observation or a response, split into text, reasoning, tool calls, results and images
    reader         one run: configuration, report, metrics, episodes
    library        all runs below a folder

A run's folder:

    .lock            names the process that works on the run; it and the folder are locked until that process ends
    config.json      the configuration
    tasks.json       evaluation: the grades of the tasks, where they have grades
    episodes.jsonl   finished episodes, one `Episode` as JSON a line
    .episodes.jsonl.index  the entries of many episodes, for the viewer; may be removed
    errors.jsonl     evaluation: attempts that failed because of infrastructure; their episodes are pending
    metrics.jsonl    training: one row an update and a measurement
    report.json      the results
    checkpoints/     training: what is needed to go on
"""
