# Ends with 0 if the task is done.
set -e
cd /app/photos
test "$(ls | sort | tr '\n' ,)" = "$(printf 'a.jpg\nb.jpg\nc-2.jpg\nc.jpg\nnotes.jpeg.txt\nwith space.jpg\n' | sort | tr '\n' ,)"
test "$(cat a.jpg b.jpg c.jpg c-2.jpg notes.jpeg.txt 'with space.jpg' | tr -d '\n')" = 123456
