interface Closable {
  close(): Promise<void>
}

/** Runs `work` with an opened resource and closes the resource when it fails. */
export async function closeOnFailure<Opened extends Closable, Made>(
  opened: Opened,
  make: (opened: Opened) => Made | Promise<Made>,
): Promise<Made> {
  try {
    return await make(opened)
  } catch (error) {
    await opened.close()
    throw error
  }
}

/** Waits for all resources to open; when one fails, closes the others and throws its reason. */
export async function openAll<const Opening extends readonly Promise<Closable>[]>(
  opening: Opening,
): Promise<{ [Index in keyof Opening]: Awaited<Opening[Index]> }> {
  try {
    return await Promise.all(opening)
  } catch (error) {
    const outcomes = await Promise.allSettled(opening)
    const opened = outcomes.filter((outcome) => outcome.status === 'fulfilled')
    await Promise.all(opened.map(({ value }) => value.close()))
    throw error
  }
}
