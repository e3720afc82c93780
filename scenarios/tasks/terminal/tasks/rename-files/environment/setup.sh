set -e
mkdir photos
cd photos
echo 1 > a.JPG
echo 2 > b.jpeg
echo 3 > c.jpg
echo 4 > c.JPG
echo 5 > notes.jpeg.txt
echo 6 > 'with space.JPG'
