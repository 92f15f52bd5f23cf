"""A small thesaurus of the actions and objects of tools. The words of a line are synonyms in the names of tools."""

from __future__ import annotations

from functools import lru_cache

from dynamic_mcp.search.words import stem

_LINES = """
create add new make insert generate build open register
delete remove erase drop clear discard purge uninstall
update edit modify change alter patch revise set adjust
get fetch retrieve read obtain show view display load
list enumerate show all browse index
search find query lookup seek locate discover grep
filter select match
sort order rank
send post submit deliver dispatch transmit push
run execute start launch invoke trigger perform
stop cancel abort kill terminate end halt shutdown
pause suspend resume
enable activate disable deactivate toggle switch
book reserve schedule reservation appointment booking
buy purchase order shop shopping checkout
sell sale
pay payment charge billing invoice bill
refund return
calculate compute count sum math evaluate solve calculator
convert transform translate change conversion
copy duplicate clone replicate
move rename relocate transfer
upload import attach
download export save backup
write append put
restore recover undo revert rollback
compare diff difference versus comparison
merge combine join concatenate
split divide separate extract
check verify validate test inspect confirm
analyze analyse review examine assess analysis evaluate
monitor watch track observe status health
summarize summary summarise digest overview brief
explain describe tell definition
recommend suggest recommendation suggestion advice advise propose
approve accept reject decline
assign assignee delegate
invite join member
subscribe follow unsubscribe
notify notification alert remind reminder
play listen watch stream playback
record capture screenshot snapshot
click press tap
type fill enter input
scroll swipe drag
navigate goto visit browse open
install setup configure configuration setting option preference
login authenticate signin auth authentication logon
logout signout
encrypt decrypt hash encode decode
compress zip archive unzip
format lint prettify beautify
parse extract scrape crawl
draw design sketch art paint artwork
plot chart graph diagram visualize visualization
speak voice speech audio pronounce
email mail message inbox gmail
message chat text sms dm conversation
channel room thread
comment reply answer respond response feedback
phone call telephone dial
contact address person people
file document doc
folder directory dir path
disk drive storage space
repository repo project codebase
issue ticket bug task story
pr pull request merge
branch commit git version revision
code program programming source script snippet
deploy release publish deployment rollout
pipeline workflow job build ci automation
server host machine vm instance node
container docker image pod
cluster kubernetes k8s
database db sql table schema
row record entry item
column field attribute property
key token secret password credential
variable env environment
log history event audit
error exception failure crash fault
metric statistic stats usage analytics
dashboard report
page website site url link webpage web http
browser tab window
article post blog publication
news headline article
paper publication literature research academic scholar journal
book novel story reading author
picture image photo photograph photography
video movie film clip youtube cinema
music song track playlist audio artist album
podcast episode show
game gaming player puzzle
sport team match league tournament
weather forecast temperature climate rain
location place address geo position coordinates
map location distance route direction navigation
near nearby closest nearest around
city town
country nation
date day time calendar
event meeting calendar schedule agenda
todo task reminder checklist
note memo knowledge
memory remember recall
trip travel journey vacation holiday itinerary tour
flight airplane plane airline
train bus railway transit
hotel accommodation lodging stay
taxi ride cab
restaurant food dining eat meal dinner lunch
recipe cook cooking dish ingredient meal
drink wine beer cocktail
job career employment hiring work vacancy resume recruit
house home property apartment estate housing
rent lease rental
car vehicle auto automobile
price cost rate fee
money currency dollar cash finance
bank account balance
stock share equity ticker market invest investment
crypto cryptocurrency bitcoin token blockchain
tax income salary wage
loan mortgage credit
company business firm organization corporation
customer client
user account person member profile
staff employee colleague worker
group team role permission
product item goods merchandise
discount coupon deal promo offer voucher
gift present
law legal court lawyer attorney
health medical doctor medicine disease symptom patient
exercise workout fitness gym
school university college education course class learn study
language translate translation
word vocabulary dictionary definition
quiz question trivia
love romantic dating relationship
kid child children
pet animal
pdf document
spreadsheet sheet excel csv
slide presentation powerpoint deck
number count quantity amount
size length dimension
random dice
id identifier
tag label category
url link address
"""


# Actions that apply to anything: one of these alone does not make a tool match.
_ACTIONS = """
create add new make insert generate build open delete remove update edit modify change set adjust get fetch retrieve
read obtain show view display list all search find query lookup seek locate discover send post run execute start use
using provide give tell check look know try put take see go come work keep
"""


@lru_cache(maxsize=1)
def actions() -> frozenset[str]:
    """Return the stems of words that do not tell what a tool works on."""
    return frozenset(map(stem, _ACTIONS.split()))


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _LINES.split("\n"):
        stems = dict.fromkeys(map(stem, line.split()))
        for each in stems:
            table.setdefault(each, {}).update(stems)
    return {each: tuple(other for other in others if other != each) for each, others in table.items()}


def synonyms(stemmed: str) -> tuple[str, ...]:
    """Return the synonyms of a stem, always in the same order."""
    return _table().get(stemmed, ())
