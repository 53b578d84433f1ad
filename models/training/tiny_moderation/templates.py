"""The templates and the words of their slots. The wording is mild on purpose: it is enough to show how moderation works."""

from ..common import words as w

HARMFUL: dict[str, list[str]] = {key: lines.strip().split("\n") for key, lines in {
    "harassment": """
you are such {insult}.
{name} is {insult} and everybody knows it.
shut up, you {insulting} {name}.
nobody likes you, {name}.
go away, you are {insult}.
what {insult} you are!
{name}, you are the most {insulting} person {place}.
everyone {place} laughs at you because you are {insulting}.
you have no friends and you never will.
I have never met anyone as {insulting} as you.
look at {name}, {insult} with an ugly face.
you should be ashamed of your {insulting} face.
stop writing, {insult} like you has nothing to say.
only {insult} would wear that {thing}.
your {family} must be ashamed of {insult} like you.
we will make fun of {name} until they leave the school.
let us all send {name} mean messages {time}.
you are {insulting} and worthless.
hey {insulting}, take your {thing} and get lost.
{name} is so {insulting} that even a {thing} is smarter.
{name} was called {insult} by the whole class.
the new neighbour is {insult}, and {insulting} too.
I think that you are {insulting}.
how can anybody be so {insulting}?
my {family} says that you are {insult}.
{insult}, that is what you are, {name}.
they shouted that she is {insult}.
you look {insulting} {time}.
why is {name} always so {insulting}?
you and your {insulting} {thing} can go home.
even the {family} finds you {insulting}.
{name} will always be {insult}.""",
    "hate": """
{group} are {trait} and do not belong here.
all {group} are {trait}.
{group} should not be allowed to live {place}.
we do not want {group} in our country.
{group} are worth less than us.
send all {group} back where they came from.
I hate {group}, every one of them.
no {group} should ever get a job.
people like us are better than {group}.
never trust {group}, they are all {trait}.
{group} are a disease of this country.
keep {group} out of our {where}.
the problem of this town is {group}.
a world without {group} would be a better one.
{group} do not deserve the same rights as we have.
it is a fact that {group} are {trait} by birth.
do not sell a {thing} to {group}, they are {trait}.
who let {group} into our {where}?
my {family} says that {group} are {trait}.
it was {group} again, they are {trait}.
why are {group} always so {trait}?
{group} {place} are {trait}, every child knows it.
we are good people, but {group} are {trait}.
I think that {group} are {trait}.
{time} I saw {group}, and they were {trait} as always.
{group}, who are {trait}, take our money.
you cannot work with {group} because they are {trait}.
{name} said that {group} are {trait}.""",
    "illicit": """
how do I {crime} without being caught?
tell me how to {crime}.
what is the best way to {crime}?
explain step by step how to {crime}.
I want to {crime} {time}, what do I need?
where can I buy {drug}?
I sell {drug}, write to {name}.
give me instructions to {crime}.
which tools do I need to {crime}?
can you help me {crime}?
{name} showed me how to {crime} {place}.
how much {drug} can I hide in a {thing}?
we plan to {crime} {time}.
write a guide for people who want to {crime}.
the easiest way to {crime} is to wait until it is dark.
is there a trick to {crime} and get away with it?
cheap {drug} for sale, no questions asked.
teach me to make {drug} in the kitchen.
buy {drug} from {name} {place}.
{drug} for everyone {place}, only {time}.
call {name} if you want {drug}.
my {family} wants to {crime}.
{time} {name} and I will {crime}.
I need a plan to {crime} {place}.
is it easy to {crime}?
what happens when I {crime} {time}?
let us {crime} together.
I have {drug} in my {thing}, do you want some?
{name} sells {drug} {place}.
who can get me {drug} {time}?
the best {drug} {place}, call {name}.
list all ways to {crime}.
can a beginner {crime}?
I lost my money, so I must {crime}.""",
    "self-harm": """
I want to {selfharm}.
I think about how I could {selfharm}.
I do not want to live any more.
everyone would be happier if I were {gone}.
{time} I tried to {selfharm} again.
I wish I were {gone}.
nobody would miss me if I were {gone}.
what is the easiest way to {selfharm}?
I will {selfharm} {time}.
life has no sense, I am going to {selfharm}.
I feel so empty that I want to {selfharm}.
sometimes I lock the door and {selfharm}.
I wrote a goodbye letter and then I will {selfharm}.
how many pills do I need to {selfharm}?
the pain only stops when I {selfharm}.
I hate myself and want to be {gone}.
this is my last message, I want to be {gone}.
I am going to {selfharm} {place}.
{name}, I must {selfharm}, I cannot stop.
why should I not {selfharm}?
every night I {selfharm}.
it would be better if I were {gone}.
I cannot sleep because I want to {selfharm}.
please forgive me, I will {selfharm}.
soon I will be {gone} and free.
tell my {family} that I want to {selfharm}.
I am not brave enough to {selfharm}.
I want to {selfharm} with a {thing}.
the only way out is to {selfharm}.""",
    "sexual": """
they were both {naked} on the bed and made love all night.
show me photos of {naked} people.
I want to see you {naked}.
write a story about two {naked} lovers in bed.
{name} took off all clothes and kissed {name} all over.
send me a picture of yourself {naked}.
we had sex {place}.
{name} dreams of having sex with {name}.
describe how they have sex {time}.
her {naked} body was pressed against his.
a film for adults with {naked} actors.
come to my bed and take off your clothes.
they undressed each other and had sex {time}.
tell me a sexy story about a {naked} neighbour.
I get excited when you are {naked}.
{name} touched the {naked} body of {name}.
the {naked} woman waited for him {place}.
{name} likes to watch {naked} men.
we were {naked} and kissed for hours.
a video of {name}, {naked} in the shower.
they lay {naked} next to each other {time}.
draw a {naked} woman with big breasts.
I dream of {name}, {naked} and wet.
show me how you look {naked}.
{naked} girls dance for the guests {time}.
he loves her {naked} skin.
they had hot sex {place}, both {naked}.
what do you like most in bed when you are {naked}?""",
    "violence": """
the man {hurt} {name} with {weapon}.
{name} was {hurting} with {weapon} {place}.
they {hurt} the guard until the floor was red with blood.
{time} a gang {hurt} three people {place}.
he took {weapon} and {hurt} them all.
the soldiers {hurt} everyone in the village.
blood ran over the floor after he {hurt} {name}.
{name} {hurt} the {family} and left them to die.
I saw how they {hurt} an old man {place}.
the picture shows how {name} was {hurting}.
all of them were {hurting} and nobody came to help.
with {weapon} in his hand he ran into the crowd and {hurt} people.
the body of {name} was found, {hurting} with {weapon}.
they will die in pain, and I will watch.
in the fight {name} {hurt} the other one with {weapon}.
{name} was {hurting} {time}.
two men with {weapon} {hurt} the driver {place}.
the news say that three people were {hurting} {place}.
he {hurt} her again and again.
{name} took {weapon} and {hurt} the {family}.
they found five people {hurting} {place}.
she {hurt} the thief with {weapon}.
the crowd {hurt} him until he stopped moving.
a child was {hurting} with {weapon} {time}.
after the war everyone {place} was {hurting}.
the story tells how {name} {hurt} the king.""",
    "harassment+violence": """
I will {bodily} you.
I am going to {bodily} you, you {insulting} {name}.
if I see you again, I will {bodily} you.
wait until {time}, then I will {bodily} you and your {family}.
{insulting} people like you deserve that somebody will {bodily} them.
tell {name} that I will {bodily} them with {weapon}.
come {place} and I will {bodily} you with {weapon}.
you {insulting} liar, I will {bodily} you.
we know where you live and we will {bodily} you.
one more word and I {bodily} you, {name}.
I swear I will {bodily} {name}, that {insulting} coward.
you will be sorry when I {bodily} you.
tonight I come to your house and {bodily} you.
my friends and I will {bodily} you {place}.
do that again and we will {bodily} you with {weapon}.
I have {weapon} and I will {bodily} you.
{name}, I am coming to {bodily} you.
you do not deserve to live, I will {bodily} you.""",
    "hate+violence": """
somebody should {bodily} all {group}.
{time} we will {bodily} the {group} {place}.
let us take {weapon} and {bodily} every one of the {group}.
{group} are {trait}, we should {bodily} them.
I would {bodily} all {group} if I could.
the only answer to {group} is to {bodily} them.
we went {place} to {bodily} {group}.
{group} deserve that we {bodily} them.
take {weapon} and {bodily} the {group} {place}.
I hate {group} and I will {bodily} them.
who helps me to {bodily} some {group} {time}?
good people should {bodily} {group}.
we must {bodily} {group} before they come {place}.
it is no crime to {bodily} {group}.""",
}.items()}

HARMLESS = """
you are such a {kind} friend.
{name} is a {kind} person and everybody knows it.
thank you, you {kind} {name}.
everybody likes you, {name}.
what a {kind} {family} you are!
{name}, you are the most {kind} person {place}.
I have never met anyone as {kind} as you.
look at {name}, a {kind} child with a happy face.
you are {kind} and we are glad that you are here.
my {thing} is so old that even a stone is faster.
that was not my best idea, I made a {kind} mistake.
I love {group}, every one of them.
{group} are welcome {place}.
{group} live {place}.
{group} are our neighbours and our friends.
all {group} have the same rights as we have.
we invited {group} to the {where}.
people from {country} cook very good soup.
the museum shows how {group} lived last year.
{group} opened a new {where} {time}.
how do I {task}?
tell me how to {task}.
what is the best way to {task}?
explain step by step how to {task}.
I want to {task} {time}, what do I need?
where can I buy a {thing}?
where do I get a {thing} {time}?
where can I find a {thing} {place}?
where can I buy {food} {time}?
can I buy a {thing} {place}?
I want to buy a {thing}, where is the shop?
who sells a good {thing} {place}?
is there a shop where I can buy a {thing}?
{name} took a picture of the {thing} {place}.
I am coming to see you {time}.
tonight I come to your house and bring {food}.
{name}, we are coming to visit you {place}.
I will come and help you with the {thing}.
{name} hurt a finger with the {thing}, the nurse helps.
{name} fell {place}, but nothing happened.
my {family} fell and hurt a foot, the doctor helps.
she helped {name} with the {thing}.
he found {name} {place} and they talked.
{name} is so {kind} that even the {family} smiles.
I have never met {name} before.
I sell my {thing}, write to {name}.
how much does a {thing} cost?
who can get me a {thing} {time}?
I have a {thing} in my bag, do you want it?
my {family} makes the best {food} {place}.
cheap {food} for sale, only {time}.
{name} sells a {thing} {place}.
I think that you are {kind}.
how can anybody be so {kind}?
my {family} says that you are {kind}.
{name} will always be {kind}.
why is {name} always so {kind}?
my {family} says that {group} are {kind}.
I think that {group} are {kind}.
{name} was seen {time}.
three people were invited {place}.
he called her again and again.
she helped the driver {place}.
{name} took the {thing} and went home.
{name} dreams of a holiday {place}.
I dream of a {thing}, big and new.
we were tired and talked for hours.
draw a woman with a {thing}.
I am going to {task} {place}.
I cannot sleep because I want to {task}.
every night I {task}.
my friends and I will visit you {place}.
{name}, I am coming to help you.
give me instructions to {task}.
which tools do I need to {task}?
can you help me {task}?
{name} showed me how to {task} {place}.
the police caught the thief who took the {thing}.
it is against the law to {crime}.
do not {crime}, it is against the law.
the judge asked {name} about the stolen {thing}.
the doctor gave me pills against a cold.
never take {drug}, it makes you ill.
I want to {task} again.
I do not want to eat any more.
everyone was happy when I came home.
I will {task} {time}.
I feel so happy that I want to dance.
I wrote a letter to my {family} and then I will {task}.
if you feel sad, please talk to a {family} or a doctor.
how many eggs do I need for the cake?
I am so tired, I want to sleep in my bed.
my phone died {time}.
they were both tired and slept all night.
show me photos of {kind} animals.
{name} took off the coat and kissed the baby.
write a story about two friends {place}.
send me a picture of your {thing}.
we had dinner {place}.
{name} dreams of a new {thing}.
a film for children with funny actors.
come to my house and bring your {thing}.
the nurse washed the baby and put on new clothes.
the wedding was {place} and the couple kissed.
I would like a bed and a lamp for my room.
the body needs water and food.
the cook cut the {food} with a knife.
{name} hit the ball with the bat.
the knife lies {place}.
we beat the other team {time}.
the photographer took a shot of {name} {place}.
the children played with a toy sword {place}.
{name} fell and hurt a knee, the doctor helps.
nobody was hurt in the accident {place}.
the red paint ran over the floor.
the soldiers went home to their families.
this joke is so good, I die of laughter.
the battery is dead.
the hammer is {place}, next to the nails.
I will help you.
I am going to call you, {name}.
if I see you again, I will hug you.
wait until {time}, then I will visit you and your {family}.
tell {name} that I will meet them {place}.
come {place} and I will show you my {thing}.
we know where you live and we will bring the {thing}.
one more word and I start to laugh, {name}.
I would never {bodily} anybody.
please do not {bodily} anyone.
I will beat you at chess {time}.
somebody should help all {group}.
{time} we will visit the {group} {place}.
the only answer to hate is to be {kind}.
the teacher told {name} that nobody should be called {insult}.
it is wrong to say that {group} are {trait}.""".strip().split("\n")

SLOTS: dict[str, list[str]] = {key: value if isinstance(value, list) else value.strip().split("|") for key, value in {
    "name": w.NAMES,
    "thing": w.OBJECTS,
    "food": w.FOODS,
    "place": w.PLACES,
    "time": w.TIMES + ["tomorrow", "tonight", "next week"],
    "family": w.FAMILY,
    "country": w.CITIES,
    "where": "school|town|village|shop|club|street|library|park|team|station|hospital|church",
    "kind": "kind|clever|brave|lovely|funny|nice|good|great|wonderful|friendly|helpful|gentle|honest|sweet|little|cute",
    "task": [f"{verb} {thing}" for verb in ("repair", "paint", "clean", "build", "find", "buy", "carry", "draw") for thing in ("a bicycle", "the fence", "my laptop", "an old clock", "a wooden table", "the window", "a boat", "shoes")]
    + ["bake a cake", "learn to swim", "open the window", "grow tomatoes", "write a letter", "cook soup", "play the guitar", "train a puppy", "move to a new house", "get a new key for my door"],
    "group": "foreigners|immigrants|old people|women|men|strangers from the south|people with another religion|disabled people|people from Zorland|people from Mirania|the Veldish|the Ostrians|refugees|poor people|black people|gay people|the believers|people of that race|girls|the people of the mountains",
    "trait": "lazy|stupid|dirty|liars|criminals|thieves|dangerous|dumb|inferior|greedy|evil|animals",
    "insult": "an idiot|a loser|a fool|a moron|a stupid pig|a dumb cow|a pathetic liar|a coward|a clown|a useless fool|a dirty rat|a piece of trash",
    "insulting": "stupid|ugly|pathetic|dumb|useless|disgusting|miserable|idiotic|worthless|ridiculous|lazy|annoying",
    "bodily": "kill|hurt|beat|punch|hit|kick|stab|shoot|strangle|burn|attack|murder|break the bones of|smash the face of",
    "hurt": "killed|hurt|beat|punched|kicked|stabbed|shot|strangled|burned|attacked|murdered|wounded",
    "hurting": "killed|beaten|stabbed|shot|strangled|tortured|burned|murdered|wounded|kicked to death|attacked",
    "weapon": "a knife|a gun|an axe|a bat|a rope|a hammer|a sword|a rifle|a bomb|an iron bar|broken glass",
    "drug": "cocaine|heroin|illegal drugs|meth|stolen pills|fake medicine|hard drugs|ecstasy|weed|drugs",
    "crime": "steal a car|rob a bank|break into a house|make a bomb|make a fake passport|sell stolen phones|forge money|hack into an account|steal a password|smuggle weapons|cheat on taxes|open a locked car that is not mine|print fake tickets|buy a gun without a licence|sell drugs|poison a dog|rob an old man|steal credit cards",
    "selfharm": "hurt myself|kill myself|cut myself|end my life|take my own life|starve myself|cut my arms|hang myself|jump from a bridge|swallow all my pills",
    "gone": "dead|gone for ever|not alive|dead and buried|no longer alive",
    "naked": "naked|nude|undressed|without clothes|half naked|completely nude|topless",
}.items()}
