set -e
cd /app/repo
for commit in $(git fsck --no-reflogs --lost-found 2> /dev/null | awk '/dangling commit/ { print $3 }'); do
    case "$(git log -1 --format=%s "$commit")" in
        'Finish the poem') git branch draft "$commit" ;;
        'WIP on main'*) git show "$commit:poem.txt" > /app/stash.txt ;;
    esac
done
