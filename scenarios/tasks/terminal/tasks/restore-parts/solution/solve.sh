set -e
cd /app
rm -f restored.bin
while read -r sum; do
    for part in parts/*; do
        if [ "$(sha256sum < "$part" | cut -d ' ' -f 1)" = "$sum" ]; then cat "$part" >> restored.bin; fi
    done
done < order.sha256
