set -e
cd /app/photos
for file in *.JPG *.jpeg; do
    new="${file%.*}.jpg"
    if [ -e "$new" ]; then new="${file%.*}-2.jpg"; fi
    mv "$file" "$new"
done
