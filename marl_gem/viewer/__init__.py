"""Looking at what happened: a page for the browser, and the same in a terminal.

    library     the runs below a folder
      index       where the episodes of a file lie, with a summary of each
      query       which of them to show, in what order
      overview    a run in a few numbers
      transcript  an episode taken apart for showing
    api, server   what the page asks for, and what serves it; page/ is the page itself
    text          the same in a terminal

A viewer reads records alone, never live objects, and takes everything in them for text that somebody else wrote.
"""
