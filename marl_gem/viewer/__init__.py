"""A viewer for runs: a page for the browser, and the same in a terminal.

    query        which episodes of a run to show, in what order
    overview     a run in a few numbers
    transcript   an episode as it is shown
    api, server  the page's questions and their answers; page/ is the page itself
    text         lists and transcripts in a terminal

A viewer reads the records of `marl_gem.runs`, never live objects, and treats all text in them as untrusted.
"""
