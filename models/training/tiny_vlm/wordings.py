"""The wordings of questions. `{a}` and `{b}` are things, the other fields words."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "colour": ("What colour is {a}?", "Which colour is {a}?", "What is the colour of {a}?", "What colour does {a} have?", "Tell me the colour of {a}.", "Name the colour of {a}.",
               "{A} is what colour?", "Can you tell what colour {a} is?", "Which colour does {a} have?", "In what colour is {a} drawn?", "Colour of {a}?"),
    "kind": ("What shape is {a}?", "Which shape is {a}?", "What is the shape of {a}?", "What shape does {a} have?", "Tell me the shape of {a}.", "Name the shape of {a}.",
             "{A} has which shape?", "Which shape does {a} have?", "What kind of shape is {a}?", "Is {a} a circle, a square, a triangle or a star?"),
    "ground": ("What colour is the background?", "Which colour is the background?", "What is the background colour?", "What is the colour of the background?", "Tell me the background colour.",
               "What colour is behind the shapes?", "Which colour does the background have?", "Name the colour of the background.", "Background colour?", "On what colour is it drawn?"),
    "count": ("How many shapes are there?", "How many shapes do you see?", "How many things are in the image?", "Count the shapes.", "How many objects are there?", "How many shapes are in this image?",
              "What is the number of shapes?", "How many shapes are shown?", "Can you count the shapes?", "How many things can you see?", "How many shapes does the picture show?", "Number of shapes?"),
    "countSome": ("How many {some} are there?", "How many {some} do you see?", "Count the {some}.", "How many {some} are in the image?", "What is the number of {some}?", "How many {some} are shown?",
                  "How many {some} can you see?", "How many {some} does the picture show?", "Tell me how many {some} there are."),
    "exists": ("Is there {a}?", "Do you see {a}?", "Can you see {a}?", "Is there {a} in the image?", "Does the image show {a}?", "Is {a} in the picture?", "Does the picture have {a}?", "Is {a} shown here?"),
    "relation": ("Is {a} {side} {b}?", "Is {a} {side} {b} in the image?", "Tell me whether {a} is {side} {b}.", "Do you see {a} {side} {b}?", "Is it true that {a} is {side} {b}?",
                 "{A} is {side} {b}, right?", "Does {a} lie {side} {b}?", "Would you say that {a} is {side} {b}?"),
    "where": ("Where is {a} relative to {b}?", "Where is {a} compared to {b}?", "On which side of {b} is {a}?", "Where is {a} as seen from {b}?", "Where does {a} lie relative to {b}?",
              "What is the position of {a} relative to {b}?", "Is {a} left of, right of, above or below {b}?"),
    "beside": ("What is {side} {b}?", "Which shape is {side} {b}?", "What do you see {side} {b}?", "Which thing is {side} {b}?", "What lies {side} {b}?", "Name the shape {side} {b}."),
    "place": ("Where is {a}?", "Where is {a} in the image?", "In which part of the image is {a}?", "Where do you see {a}?", "What is the position of {a}?", "Where in the picture is {a}?",
              "In which corner or part is {a}?", "Where does {a} lie?"),
    "outermost": ("Which shape is {outermost}?", "What is the {outermost} shape?", "Name the {outermost} shape.", "Which is the {outermost} thing?", "What shape is {outermost}?"),
    "digit": ("Which digit is this?", "What digit is this?", "What number is this?", "Which number is shown?", "What digit is shown?", "Which digit do you see?", "Read the digit.", "What number do you see?",
              "What digit is in the image?", "Which number is in the picture?", "Tell me the digit.", "Which number is it?", "What does the digit say?", "What is the number?"),
    "isDigit": ("Is this a {digit}?", "Is the digit a {digit}?", "Do you see a {digit}?", "Is the number {digit}?", "Does the image show a {digit}?", "Is it the digit {digit}?"),
    "anyDigit": ("Is there a digit?", "Is there a number in the image?", "Do you see a digit?", "Does the picture show a number?", "Is this a digit?", "Can you see a number?"),
    "what": ("What is this?", "What do you see?", "What is shown?", "What is in the image?", "What does the image show?", "What is in this picture?", "What can you see here?", "What's in this image?",
             "What is on the picture?", "What's this?"),
    "caption": ("Describe the image.", "Describe this image.", "Describe the picture.", "Write a caption.", "Caption this image.", "Give me a caption for this image.", "What is shown in this image? Describe it.",
                "Please describe what you see.", "Describe what is in the image.", "Write a caption for the picture.", "Tell me what this image shows.", "Summarize the image in one sentence."),
}

# For evaluations alone: training never has them.
UNSEEN: dict[str, tuple[str, ...]] = {
    "colour": ("{A} has which colour?", "Say which colour {a} is.", "Please name the colour that {a} has."),
    "count": ("What number of shapes is there?", "Please count all things.", "Say how many shapes you see."),
    "relation": ("Can you confirm that {a} is {side} {b}?", "Do you find {a} {side} {b}?", "Is {a} drawn {side} {b}?"),
    "where": ("Relative to {b}, where is {a}?", "Seen from {b}, where is {a}?", "Tell me where {a} is relative to {b}."),
    "digit": ("What digit can you see?", "Say which digit it is.", "Please read the number."),
}


def wordings(kind: str, unseen: bool) -> tuple[str, ...]:
    """Those of training, or those that it never has."""
    return (UNSEEN if unseen else WORDINGS)[kind]
