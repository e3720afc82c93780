set -e
cat > /app/backup.sh <<'END'
#!/bin/bash
if [ ! -d "$1" ]; then
    echo "there is no folder $1" >&2
    exit 1
fi
mkdir -p "$2"
target=$(cd "$2" && pwd)
cd "$1"
count=0
while IFS= read -r -d '' file; do
    mkdir -p "$target/$(dirname "$file")"
    cp "$file" "$target/$file"
    count=$((count + 1))
done < <(find . -name '*.txt' -type f -print0)
echo $count
END
