# ---
# description: Write a note with the day that is so many working days after another one
# input:
#   properties:
#     what: {type: string}
#     start: {type: string, format: date}
#     days: {type: integer, minimum: 1, default: 10}
#   required: [what, start]
# ---
day = await call("dates", "add_working_days", {"start": input["start"], "days": input.get("days", 10)})
title = f"{input['what']} by {day['date']}"
note = await call("notes", "add_note", {"title": title, "text": f"It is a {day['weekday']}."})
return note["name"]
