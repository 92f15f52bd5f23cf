# ---
# description: Add a tag to the notes that have some words, and name them. A tagged note is a new note.
# input:
#   properties:
#     tag: {type: string, description: One word, pattern: "^[a-z]+$"}
#     query: {type: string, description: Words that must all occur in a note}
#   required: [tag, query]
# ---
import asyncio

found = await call("notes", "search_notes", {"query": input["query"], "limit": 50})
notes = await asyncio.gather(*[call("notes", "read_note", {"name": each["name"]}) for each in found])
tagged = []
for note in notes:
    try:
        title = f"{note['title']} #{input['tag']}"
        tagged.append((await call("notes", "add_note", {"title": title, "text": note["text"]}))["name"])
    except ToolError as error:
        print(details(error)["message"])
return tagged
