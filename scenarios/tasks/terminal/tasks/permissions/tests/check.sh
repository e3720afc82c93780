# Ends with 0 if the task is done.
set -e
cd /app/site
for folder in . bin pages; do test "$(stat -c %a $folder)" = 755; done
test "$(stat -c %a pages/index.html pages/draft.html bin/deploy.sh | tr '\n' ,)" = 644,644,744,
grep -q hello pages/index.html
